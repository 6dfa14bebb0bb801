// Ranks of mpirun: mpi_ranks_program SCENE. What goes wrong is said, and exits with 1.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "retinue/collective/objects.h"
#include "retinue/ipc/queue.h"
#include "retinue/launch/guest.h"
#include "retinue/launch/runtime.h"
#include "retinue/mpi/communicator.h"

namespace {

using retinue::Communicator;
using retinue::communicator_of;

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

void expect(bool is_true, const std::string& what) {
  if (!is_true) throw std::runtime_error(what);
}

/// What the call throws as a UsageError.
std::string usage_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const retinue::UsageError& error) {
    return error.what();
  }
  return "no UsageError";
}
void expect_error(const std::function<void()>& call, const std::string& part) {
  const std::string error = usage_error_of(call);
  expect(error.find(part) != std::string::npos, fmt::format("'{}' lacks '{}'", error, part));
}

std::vector<double> numbers_of(int rank, std::size_t count) {
  std::vector<double> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = rank * 0.5 + static_cast<double>(i % 1000);
  return numbers;
}

/// The same by both libraries; of numbers whose sums are exact in every order.
void compare(MPI_Comm comm, Communicator& group) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  expect(group.rank() == rank && group.size() == size, "the group's ranks are not the communicator's");
  const auto ranks = static_cast<std::size_t>(size);
  for (const std::size_t count : {1, 1000, 100'000}) {
    const auto n = static_cast<int>(count);
    std::vector<double> theirs = numbers_of(rank, count);
    std::vector<double> ours = theirs;
    MPI_Allreduce(MPI_IN_PLACE, theirs.data(), n, MPI_DOUBLE, MPI_SUM, comm);
    group.all_reduce(std::span(ours));
    expect(ours == theirs, "all_reduce differs");
    MPI_Bcast(theirs.data(), n, MPI_DOUBLE, size - 1, comm);
    group.broadcast(std::span(ours), size - 1);
    expect(ours == theirs, "broadcast differs");
    const std::vector<double> own = numbers_of(rank, count);
    std::vector<double> their_parts(count * ranks);
    std::vector<double> our_parts(count * ranks);
    MPI_Allgather(own.data(), n, MPI_DOUBLE, their_parts.data(), n, MPI_DOUBLE, comm);
    group.all_gather(std::span(own), std::span(our_parts));
    expect(our_parts == their_parts, "all_gather differs");
    std::vector<double> their_turn(count * ranks);
    std::vector<double> our_turn(count * ranks);
    MPI_Alltoall(their_parts.data(), n, MPI_DOUBLE, their_turn.data(), n, MPI_DOUBLE, comm);
    group.all_to_all(std::span<const double>(our_parts), std::span(our_turn));
    expect(our_turn == their_turn, "all_to_all differs");
    MPI_Scan(own.data(), theirs.data(), n, MPI_DOUBLE, MPI_MAX, comm);
    group.scan(std::span(own), std::span(ours), retinue::ReduceOp::kMax);
    expect(ours == theirs, "scan differs");
  }
}

/// Communicators of all kinds, made in each other's presence.
void collectives() {
  const int rank = world_rank();
  Communicator world = communicator_of(MPI_COMM_WORLD);
  compare(MPI_COMM_WORLD, world);
  const auto split = [&](int color, int key) {
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, color, key, &part);
    Communicator group = communicator_of(part);
    expect(group.group().memory == world.group().memory, "there was memory in common");
    compare(part, group);
    MPI_Comm_free(&part);
    group.barrier();
  };
  split(rank % 2, 0);
  split(rank / 2, -rank);
  split(0, -rank);
  split(rank, 0);
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_set_name(copy, "copy");
  Communicator second = communicator_of(copy);
  expect(second.group().name.starts_with("copy "), second.group().name);
  for (int i = 0; i < 3; ++i) {
    compare(copy, second);
    compare(MPI_COMM_WORLD, world);
  }
  MPI_Comm_free(&copy);
}

/// Rows, then columns, then all: nobody knows at first who else there is.
void grid() {
  const int rank = world_rank();
  MPI_Comm comms[3] = {};
  MPI_Comm_split(MPI_COMM_WORLD, rank / 2, 0, &comms[0]);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &comms[1]);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comms[2]);
  std::vector<Communicator> groups;
  for (MPI_Comm comm : comms) groups.push_back(communicator_of(comm));
  for (std::size_t i = 0; i < 3; ++i) compare(comms[i], groups[i]);
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
}

/// Messages and collectives when MPI has ended, and rank 0 before the others.
void finalized() {
  Communicator world = communicator_of(MPI_COMM_WORLD);
  const int rank = world_rank();
  MPI_Comm others = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 0, 0, &others);
  if (others == MPI_COMM_NULL) {
    expect_error([&] { communicator_of(others); }, "it is MPI_COMM_NULL");
    MPI_Finalize();
    world.barrier();
    return;
  }
  Communicator group = communicator_of(others);
  MPI_Finalize();
  world.barrier();
  try {
    world.barrier();
    expect(false, "rank 0 has left");
  } catch (const retinue::PeerLost& error) {
    expect(error.ranks() == std::vector{0}, error.what());
  }
  for (int i = 0; i < 1000; ++i) {
    int sum = 1;
    group.all_reduce(std::span(&sum, 1));
    expect(sum == group.size(), "all_reduce after rank 0's end");
  }
  expect_error([] { communicator_of(MPI_COMM_WORLD); }, "MPI is finalised");
}

void errors() {
  const int rank = world_rank();
  if (world_size() > 1) {
    MPI_Comm half = MPI_COMM_NULL;
    MPI_Comm inter = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 7, &inter);
    expect_error([&] { communicator_of(inter); }, "MPI_Intercomm_merge");
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
  }
  // One rank's error is everybody's.
  std::string error;
  const auto join = [&] { error = usage_error_of([] { communicator_of(MPI_COMM_WORLD); }); };
  if (rank == world_size() - 1)
    std::thread(join).join();
  else
    join();
  expect(error.find(fmt::format("rank {}: only the main thread", world_size() - 1)) != std::string::npos, error);
  Communicator world = communicator_of(MPI_COMM_WORLD);
  world.barrier();
  // The handler is what it was: this would be fatal.
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
  expect(handler == MPI_ERRORS_ARE_FATAL, "MPI's error handler is another one");
  MPI_Errhandler_free(&handler);
}

/// Rank 0 starts a job before MPI begins, and the others are its guests: they share more than collectives.
void guests(retinue::Runtime* runtime) {
  std::string id = runtime != nullptr ? runtime->job_id() : "";
  id.resize(64);
  MPI_Bcast(id.data(), 64, MPI_CHAR, 0, MPI_COMM_WORLD);
  if (runtime == nullptr) retinue::join_job(id.c_str());
  MPI_Comm back = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank(), &back);
  Communicator group = communicator_of(back);  // Its rank 0 is a guest.
  expect(group.group().memory == retinue::JobMemory::current(), "the job's memory is the group's");
  compare(back, group);
  MPI_Comm_free(&back);
  retinue::Queue<int> queue;
  if (group.rank() == 0) queue = retinue::Queue<int>({.capacity = 100});
  retinue::broadcast_object(group, queue, 0);
  queue.put(group.rank());
  group.barrier();
  if (group.rank() != 0) return;
  int sum = 0;
  for (int i = 0; i < group.size(); ++i) sum += queue.get();
  expect(sum == group.size() * (group.size() - 1) / 2, "the queue lacks something");
}

/// Rank 1 is killed; mpirun is not told, as its child is this process's parent.
int survive(int* argc, char*** argv) {
  signal(SIGUSR1, SIG_IGN);  // By which MPICH's tells all the same of it.
  const pid_t pid = fork();
  if (pid != 0) {
    int status = -1;
    waitpid(pid, &status, 0);
    fmt::print("{}\n", WIFSIGNALED(status) ? "killed" : WEXITSTATUS(status) == 0 ? "told" : "failed");
    return WIFEXITED(status) && WEXITSTATUS(status) != 0 ? 1 : 0;
  }
  MPI_Init(argc, argv);
  Communicator group = communicator_of(MPI_COMM_WORLD);
  MPI_Finalize();
  group.barrier();
  if (group.rank() == 1) kill(getpid(), SIGKILL);
  try {
    for (;;) group.barrier();
  } catch (const retinue::PeerLost& error) {
    std::exit(error.ranks() == std::vector{1} ? 0 : 1);
  }
}

/// The same, seen by mpirun.
void killed() {
  Communicator group = communicator_of(MPI_COMM_WORLD);
  group.barrier();
  if (group.rank() == 1) kill(getpid(), SIGKILL);
  for (;;) group.barrier();
}

int run(const std::string& scene, int* argc, char*** argv) {
  if (scene == "survive") return survive(argc, argv);
  std::unique_ptr<retinue::Runtime> runtime;
  const char* ranks[] = {std::getenv("OMPI_COMM_WORLD_RANK"), std::getenv("PMI_RANK")};
  if (scene == "guests" && std::any_of(ranks, std::end(ranks), [](const char* rank) { return rank && *rank == '0'; }))
    runtime = std::make_unique<retinue::Runtime>(*argc, *argv);
  if (scene == "errors") expect_error([] { communicator_of(MPI_COMM_WORLD); }, "call MPI_Init");
  int level = 0;
  MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &level);
  const int rank = world_rank();
  const std::map<std::string, std::function<void()>> scenes{
      {"collectives", collectives}, {"grid", grid},     {"finalized", finalized},
      {"errors", errors},           {"killed", killed}, {"guests", [&] { guests(runtime.get()); }},
  };
  scenes.at(scene)();
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  if (is_finalized == 0) MPI_Finalize();
  if (rank == 0) fmt::print("{}: ok\n", scene);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "", &argc, &argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "failed: {}\n", error.what());
    std::fflush(stdout);
    _exit(1);
  }
}
