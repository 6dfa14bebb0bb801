/// A peer: MPI's collectives, on command. bench/peers/install compiles it for each MPI; all ranks are on one host.
///
///     mpirun -n RANKS mpi_ranks
///
/// retinue-bench writes lines to rank 0's standard input and reads one JSON object per line from its standard output:
/// {"ranks": [{"enter": [ns...], "exit": [ns...]}, ...]} on CLOCK_MONOTONIC, one pair per timed iteration and rank, or
/// {"error": text}.
///
///     OP BYTES WARMUPS ITERATIONS      OP: a name of kOps in mpi_ops.h
///     end                              as does the end of the input, which not every mpirun hands on
///
/// BYTES is one block's: the whole buffer of barrier, all_reduce, broadcast, reduce and scan, each rank's part of the
/// others. What is rewritten before a call and checked after it is the same as in bench/collective/data_ops.h.
#define _GNU_SOURCE
#include <inttypes.h>
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "mpi_ops.h"

enum { kLongestLine = 128, kAcceptSeconds = 10 };

static const char kEnd[] = "end";

struct Command {
  const struct Op* op;
  size_t bytes;
  int warmups;
  int iterations;
};

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void fail(const char* what) {
  perror(what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/// Memory for `count` of something, its pages touched.
static void* make(size_t count, size_t bytes) {
  const size_t all = (count * bytes + 4095) / 4096 * 4096;
  void* const memory = aligned_alloc(4096, all > 0 ? all : 4096);
  if (memory == NULL) fail("mpi_ranks: a buffer");
  return memset(memory, 0, all);
}

static int count_of(enum Blocks blocks) {
  return blocks == kNone ? 0 : blocks == kOne ? 1 : ranks_;
}
static int inputs_of(const struct Op* op) {
  return count_of(rank_ == kRoot ? op->root_input : op->other_input);
}
static int outputs_of(const struct Op* op) {
  return count_of(rank_ == kRoot ? op->root_output : op->other_output);
}

/// What a rank puts at place 0 of a block; place i has i & 15 more.
static float first_value(int rank, int block, int iteration) {
  return (float)(1 + ((iteration + 1024) & 7) + 8 * (rank + 37 * block));
}

static void rewrite(const struct Op* op, const struct Buffers* b, int iteration) {
  for (int block = 0; block < inputs_of(op); ++block) {
    float* const data = b->input + (size_t)block * (size_t)b->count;
    const float first = first_value(rank_, block, iteration);
    for (int i = 0; i < b->count; ++i) data[i] = first + (float)(i & 15);
  }
}

static int64_t count_wrong(const struct Op* op, const struct Buffers* b, int iteration) {
  int64_t wrong = 0;
  for (int block = 0; block < outputs_of(op); ++block) {
    const float* const data = b->output + (size_t)block * (size_t)b->count;
    const struct Source source = op->source(block);
    const float step = (float)(source.last - source.first + 1);
    float first = 0;
    for (int rank = source.first; rank <= source.last; ++rank) first += first_value(rank, source.block, iteration);
    int wrong_here = 0;
    for (int i = 0; i < b->count; ++i) wrong_here += data[i] != first + step * (float)(i & 15);
    wrong += wrong_here;
  }
  return wrong;
}

/// Calls the collective as often as the command says, and notes when this rank entered and left it.
static int64_t measure(const struct Command* command, int64_t* enter, int64_t* leave) {
  const struct Op* const op = command->op;
  const size_t count = command->bytes / sizeof(float);
  struct Buffers b = {.count = (int)count};
  // In place a rank that only gives still has one buffer, and so has one that only takes.
  b.output = make(op->is_in_place ? count : count * (size_t)outputs_of(op), sizeof(float));
  b.input = op->is_in_place ? b.output : make(count * (size_t)inputs_of(op), sizeof(float));
  int64_t wrong = 0;
  for (int i = -command->warmups; i < command->iterations; ++i) {
    rewrite(op, &b, i);
    if (op->leaves_early) MPI_Barrier(MPI_COMM_WORLD);
    const int64_t before = now_ns();
    op->call(&b);
    const int64_t after = now_ns();
    wrong += count_wrong(op, &b, i);
    if (i < 0) continue;
    enter[i] = before;
    leave[i] = after;
  }
  if (b.input != b.output) free(b.input);
  free(b.output);
  return wrong;
}

static void print_list(const char* name, const int64_t* times, int count) {
  printf("\"%s\": [", name);
  for (int i = 0; i < count; ++i) printf("%s%" PRId64, i > 0 ? ", " : "", times[i]);
  printf("]");
}

static void print_answer(const struct Command* command, int64_t wrong, const int64_t* times) {
  const int count = command->iterations;
  if (wrong > 0) {
    printf("{\"error\": \"%s: %" PRId64 " elements are wrong\"}\n", command->op->name, wrong);
    return;
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    printf(rank == 0 ? "{\"ranks\": [{" : "}, {");
    print_list("enter", times + (size_t)(2 * rank) * (size_t)count, count);
    printf(", ");
    print_list("exit", times + (size_t)(2 * rank + 1) * (size_t)count, count);
  }
  printf("}]}\n");
}

/// Whether the line is a command. Every rank reads it for itself.
static int parse(const char* line, struct Command* command) {
  char name[32];
  if (sscanf(line, "%31s %zu %d %d", name, &command->bytes, &command->warmups, &command->iterations) != 4) return 0;
  command->op = NULL;
  for (size_t i = 0; i < sizeof kOps / sizeof kOps[0]; ++i)
    if (strcmp(kOps[i].name, name) == 0) command->op = &kOps[i];
  return command->op != NULL && command->bytes % sizeof(float) == 0 && command->bytes / sizeof(float) <= INT32_MAX &&
         command->warmups >= 0 && command->iterations > 0;
}

static void run(const struct Command* command) {
  const int count = 2 * command->iterations;
  int64_t* const own = make((size_t)count, sizeof(int64_t));
  int64_t* const all = rank_ == kRoot ? make((size_t)count * (size_t)ranks_, sizeof(int64_t)) : NULL;
  const int64_t wrong = measure(command, own, own + command->iterations);
  int64_t all_wrong = 0;
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_INT64_T, MPI_SUM, kRoot, MPI_COMM_WORLD);
  MPI_Gather(own, count, MPI_INT64_T, all, count, MPI_INT64_T, kRoot, MPI_COMM_WORLD);
  if (rank_ == kRoot) {
    print_answer(command, all_wrong, all);
    fflush(stdout);
  }
  free(all);
  free(own);
}

/// Rank 0: a socket to each other rank, by rank. Others: one to rank 0. A rank that waits for a command inside of MPI
/// would spin while others are measured; one that reads from a socket is blocked, and learns of rank 0's death.
static int* connect_ranks(void) {
  int* const channels = make((size_t)ranks_, sizeof(int));
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  socklen_t bytes = sizeof(sa_family_t);  // The kernel chooses a name that leaves no file.
  const int own = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (rank_ == kRoot) {
    const struct timeval limit = {.tv_sec = kAcceptSeconds};
    setsockopt(own, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (bind(own, (struct sockaddr*)&address, bytes) != 0 || listen(own, ranks_) != 0) fail("mpi_ranks: a socket");
    bytes = sizeof address;
    getsockname(own, (struct sockaddr*)&address, &bytes);
  }
  MPI_Bcast(&bytes, sizeof bytes, MPI_BYTE, kRoot, MPI_COMM_WORLD);
  MPI_Bcast(&address, sizeof address, MPI_BYTE, kRoot, MPI_COMM_WORLD);
  if (rank_ != kRoot) {
    if (connect(own, (struct sockaddr*)&address, bytes) != 0) fail("mpi_ranks: connect to rank 0");
    channels[0] = own;
    return channels;
  }
  for (int rank = 1; rank < ranks_; ++rank)
    if ((channels[rank] = accept4(own, NULL, NULL, SOCK_CLOEXEC)) < 0) fail("mpi_ranks: accept");
  close(own);
  return channels;
}

static void tell_others(const int* channels, const char* line) {
  for (int rank = 1; rank < ranks_; ++rank)
    if (send(channels[rank], line, strlen(line) + 1, MSG_NOSIGNAL) < 0) fail("mpi_ranks: a rank is gone");
}

static void lead(const int* channels) {
  char line[kLongestLine];
  struct Command command;
  while (fgets(line, sizeof line, stdin) != NULL && strncmp(line, kEnd, strlen(kEnd)) != 0) {
    if (!parse(line, &command)) {
      printf("{\"error\": \"mpi_ranks: no command\"}\n");
      fflush(stdout);
      continue;
    }
    tell_others(channels, line);
    run(&command);
  }
  tell_others(channels, kEnd);
}

static void follow(int channel) {
  char line[kLongestLine];
  struct Command command;
  for (;;) {
    if (read(channel, line, sizeof line) <= 0) _exit(1);  // Rank 0 is gone; MPI_Finalize would wait for it.
    if (strcmp(line, kEnd) == 0) return;
    if (parse(line, &command)) run(&command);
  }
}

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // A killed mpirun ends no rank that spins.
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  int* const channels = connect_ranks();
  if (rank_ == kRoot) {
    lead(channels);
  } else {
    follow(channels[0]);
  }
  free(channels);
  MPI_Finalize();
  return 0;
}
