/// What mpi_ranks.c measures: MPI's calls, and what must come out where.
#pragma once

#include <mpi.h>
#include <stddef.h>

enum { kRoot = 0 };

static int rank_;
static int ranks_;

struct Buffers {
  float* input;
  float* output;
  int count;  ///< Elements of a block.
};

/// A block of a result is the sum of these ranks' block `block`.
struct Source {
  int first;
  int last;
  int block;
};

enum Blocks { kNone, kOne, kEach };

struct Op {
  const char* name;
  void (*call)(const struct Buffers* buffers);
  struct Source (*source)(int block);
  enum Blocks root_input, other_input, root_output, other_output;
  int is_in_place;
  int leaves_early;  ///< A rank may leave before the others have come: a barrier comes first, untimed.
};

static void barrier(const struct Buffers* b) {
  (void)b;
  MPI_Barrier(MPI_COMM_WORLD);
}
static void all_reduce(const struct Buffers* b) {
  MPI_Allreduce(MPI_IN_PLACE, b->output, b->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void broadcast(const struct Buffers* b) {
  MPI_Bcast(b->output, b->count, MPI_FLOAT, kRoot, MPI_COMM_WORLD);
}
static void reduce(const struct Buffers* b) {
  const int is_root = rank_ == kRoot;
  MPI_Reduce(is_root ? MPI_IN_PLACE : b->input, is_root ? b->output : NULL, b->count, MPI_FLOAT, MPI_SUM, kRoot,
             MPI_COMM_WORLD);
}
static void scan(const struct Buffers* b) {
  MPI_Scan(MPI_IN_PLACE, b->output, b->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void all_gather(const struct Buffers* b) {
  MPI_Allgather(b->input, b->count, MPI_FLOAT, b->output, b->count, MPI_FLOAT, MPI_COMM_WORLD);
}
static void gather(const struct Buffers* b) {
  MPI_Gather(b->input, b->count, MPI_FLOAT, b->output, b->count, MPI_FLOAT, kRoot, MPI_COMM_WORLD);
}
static void scatter(const struct Buffers* b) {
  MPI_Scatter(b->input, b->count, MPI_FLOAT, b->output, b->count, MPI_FLOAT, kRoot, MPI_COMM_WORLD);
}
static void reduce_scatter(const struct Buffers* b) {
  MPI_Reduce_scatter_block(b->input, b->output, b->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void all_to_all(const struct Buffers* b) {
  MPI_Alltoall(b->input, b->count, MPI_FLOAT, b->output, b->count, MPI_FLOAT, MPI_COMM_WORLD);
}

static void send_to_each(const struct Buffers* b) {
  if (rank_ != kRoot) {
    MPI_Recv(b->output, b->count, MPI_FLOAT, kRoot, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return;
  }
  for (int rank = 0; rank < ranks_; ++rank)
    if (rank != kRoot)
      MPI_Send(b->input + (size_t)rank * (size_t)b->count, b->count, MPI_FLOAT, rank, 0, MPI_COMM_WORLD);
}
static void sendrecv(const struct Buffers* b) {
  MPI_Sendrecv(b->input, b->count, MPI_FLOAT, (rank_ + 1) % ranks_, 0, b->output, b->count, MPI_FLOAT,
               (rank_ + ranks_ - 1) % ranks_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static struct Source from_all(int block) {
  (void)block;
  return (struct Source){0, ranks_ - 1, 0};
}
static struct Source from_root(int block) {
  (void)block;
  return (struct Source){kRoot, kRoot, 0};
}
static struct Source from_lower(int block) {
  (void)block;
  return (struct Source){0, rank_, 0};
}
static struct Source from_each(int block) {
  return (struct Source){block, block, 0};
}
static struct Source own_of_root(int block) {
  (void)block;
  return (struct Source){kRoot, kRoot, rank_};
}
static struct Source own_of_all(int block) {
  (void)block;
  return (struct Source){0, ranks_ - 1, rank_};
}
static struct Source own_of_each(int block) {
  return (struct Source){block, block, rank_};
}

static struct Source from_one_before(int block) {
  (void)block;
  return (struct Source){(rank_ + ranks_ - 1) % ranks_, (rank_ + ranks_ - 1) % ranks_, 0};
}

static const struct Op kOps[] = {
    {"barrier", barrier, from_all, kNone, kNone, kNone, kNone, 0, 0},
    {"all_reduce", all_reduce, from_all, kOne, kOne, kOne, kOne, 1, 0},
    {"broadcast", broadcast, from_root, kOne, kNone, kOne, kOne, 1, 1},
    {"reduce", reduce, from_all, kOne, kOne, kOne, kNone, 1, 1},
    {"scan", scan, from_lower, kOne, kOne, kOne, kOne, 1, 1},
    {"all_gather", all_gather, from_each, kOne, kOne, kEach, kEach, 0, 0},
    {"gather", gather, from_each, kOne, kOne, kEach, kNone, 0, 1},
    {"scatter", scatter, own_of_root, kEach, kNone, kOne, kOne, 0, 1},
    {"reduce_scatter", reduce_scatter, own_of_all, kEach, kEach, kOne, kOne, 0, 0},
    {"all_to_all", all_to_all, own_of_each, kEach, kEach, kEach, kEach, 0, 0},
    {"send", send_to_each, own_of_root, kEach, kNone, kNone, kOne, 0, 1},
    {"sendrecv", sendrecv, from_one_before, kOne, kOne, kOne, kOne, 0, 1},
};
