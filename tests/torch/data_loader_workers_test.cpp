// Workers that fail, die, hang or are no longer needed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>

#include "os/files/file_descriptor.h"
#include "retinue/torch/data_loader.h"
#include "support/captured_stderr.h"
#include "support/fork_shared.h"
#include "support/job_test.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/wait_until.h"
#include "torch/counted_items.h"

namespace retinue {
namespace {

using test::says;
using OrderSampler = torch::data::samplers::SequentialSampler;

class LoaderWorkers : public test::JobTest {};

constexpr std::size_t kItems = 40;

/// Does something at one item, a given number of times.
struct FaultyItems : test::CountedItems {
  enum class Fault { kKill, kExit, kThrow, kThrowNumber, kMisuse, kHang };

  FaultyItems(Fault fault, std::size_t at, int times) : CountedItems(kItems), fault(fault), at(at), times(times) {}

  torch::data::Example<> get(std::size_t index, ItemGenerator& generator) {
    if (index == at && count->fetch_add(1) < times) fail();
    return CountedItems::get(index, generator);
  }
  void fail() const {
    switch (fault) {
      case Fault::kKill:
        raise(SIGKILL);
        break;
      case Fault::kExit:
        _exit(3);
      case Fault::kThrow:
        throw std::out_of_range("no such picture");
      case Fault::kThrowNumber:
        throw 17;
      case Fault::kMisuse:
        throw UsageError("no such folder");
      case Fault::kHang:
        pause();
        break;
    }
  }

  Fault fault;
  std::size_t at;
  int times;
  std::shared_ptr<test::ForkShared<std::atomic<int>>> shared = std::make_shared<test::ForkShared<std::atomic<int>>>();
  std::atomic<int>* count = shared->get();
};
using Fault = FaultyItems::Fault;

constexpr DataLoaderOptions kForks = {.batch_size = 4, .workers = 2, .kind = WorkerKind::kProcesses};

test::Batches right_batches() {
  return test::serial_batches(test::CountedItems(kItems), OrderSampler(kItems), kForks, 0);
}

template <class Loader>
std::string error_of_loop(Loader& loader, std::size_t& batches) {
  try {
    for ([[maybe_unused]] auto& batch : loader) ++batches;
  } catch (const DataLoaderError& error) {
    EXPECT_LT(error.worker(), 2u);
    EXPECT_TRUE(says(error.what(), "item " + std::to_string(error.index()))) << error.what();
    return error.what();
  }
  return "no error";
}

TEST_F(LoaderWorkers, OneThatIsKilledIsReplacedAndItsBatchIsLoadedAgain) {
  const test::CapturedStderr captured;
  const auto loader = make_data_loader<OrderSampler>(FaultyItems(Fault::kKill, 17, 1), kForks);
  const std::vector<int> before = loader->worker_pids();
  captured.begin();
  EXPECT_TRUE(test::are_equal(test::all_batches(*loader), right_batches()));
  EXPECT_EQ(test::count_of(captured.text(), "was killed by signal 9 (Killed) in item 17"), 1) << captured.text();
  const std::vector<int> after = loader->worker_pids();
  EXPECT_EQ((before[0] != after[0]) + (before[1] != after[1]), 1);
  const int dead = before[0] != after[0] ? before[0] : before[1];
  EXPECT_TRUE(says(captured.text(), "(process " + std::to_string(dead) + ")")) << captured.text();
}

TEST_F(LoaderWorkers, TwoThatDieInOneItemAreAnError) {
  for (const Fault fault : {Fault::kKill, Fault::kExit}) {
    const auto loader = make_data_loader<OrderSampler>(FaultyItems(fault, 17, 2), kForks);
    std::size_t batches = 0;
    const std::string error = error_of_loop(*loader, batches);
    EXPECT_EQ(batches, 4u);
    EXPECT_TRUE(says(error, fault == Fault::kKill ? "was killed by signal 9 (Killed)" : "ended with exit code 3"))
        << error;
    EXPECT_TRUE(says(error, "in item 17")) << error;
    // The third one lives, and so does the loader.
    EXPECT_EQ(test::all_batches(*loader).size(), 10u);
  }
}

TEST_F(LoaderWorkers, OneThatIsKilledWhileItIsIdleIsReplaced) {
  const test::CapturedStderr captured;
  captured.begin();
  auto loader = make_data_loader<OrderSampler>(test::CountedItems(kItems), kForks);
  for (const int pid : loader->worker_pids()) kill(pid, SIGKILL);
  EXPECT_TRUE(test::are_equal(test::all_batches(*loader), right_batches()));
  EXPECT_TRUE(says(captured.text(), "was killed by signal 9")) << captured.text();
}

TEST_F(LoaderWorkers, ManyDeathsLoseNoBatch) {
  const test::CapturedStderr captured;
  captured.begin();
  const auto loader = make_data_loader<OrderSampler>(test::CountedItems(kItems), kForks);
  const test::Batches wanted = right_batches();
  for (int round = 0; round < 20; ++round) {
    test::Batches got;
    for (auto& batch : *loader) {
      // The batches that a worker can die in the first time are over by the second.
      if (got.size() % 9 == 0) kill(loader->worker_pids()[static_cast<std::size_t>(round) % 2], SIGKILL);
      got.push_back({batch.data.clone(), batch.target.clone()});
    }
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_TRUE(torch::equal(got[i].target, wanted[i].target));
  }
}

TEST_F(LoaderWorkers, WhatADatasetThrowsComesToTheLoop) {
  for (const WorkerKind kind : {WorkerKind::kThreads, WorkerKind::kProcesses}) {
    DataLoaderOptions options = kForks;
    options.kind = kind;
    const auto loader = make_data_loader<OrderSampler>(FaultyItems(Fault::kThrow, 9, 1), options);
    std::size_t batches = 0;
    const std::string error = error_of_loop(*loader, batches);
    EXPECT_EQ(batches, 2u);
    EXPECT_TRUE(says(error, "failed to load item 9: std::out_of_range: no such picture")) << error;
    EXPECT_TRUE(says(error, kind == WorkerKind::kThreads ? "a thread" : "process ")) << error;
    EXPECT_EQ(test::all_batches(*loader).size(), 10u);
    const auto with_number = make_data_loader<OrderSampler>(FaultyItems(Fault::kThrowNumber, 9, 1), options);
    EXPECT_TRUE(says(error_of_loop(*with_number, batches), "no std::exception"));
    const auto misused = make_data_loader<OrderSampler>(FaultyItems(Fault::kMisuse, 9, 1), options);
    const std::string misuse = test::usage_error_of([&] { test::all_batches(*misused); });
    EXPECT_TRUE(says(misuse, "failed to load item 9: no such folder")) << misuse;
  }
  const auto alone = make_data_loader<OrderSampler>(FaultyItems(Fault::kThrow, 9, 1), {.batch_size = 4});
  EXPECT_THROW(test::all_batches(*alone), std::out_of_range);
}

/// Lets fork() fail in this process and its forks, as a limit on processes does.
void forbid_forks() {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(filter), filter};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

TEST(LoaderWorkersOfARank, AreAnErrorWhereTheyCannotBeReplaced) {
  test::run_ranks(1, [&](const JobGroup& members) {
    JobMemory::set_current(members.memory);
    at::set_num_threads(1);
    DataLoaderOptions options = kForks;
    options.workers = 1;
    const auto loader = make_data_loader<OrderSampler>(FaultyItems(Fault::kKill, 9, 1), options);
    forbid_forks();
    for (int pass = 0; pass < 3; ++pass) {
      try {
        test::all_batches(*loader);
        ADD_FAILURE() << "no error in pass " << pass;
      } catch (const SystemError& error) {
        EXPECT_EQ(error.errno_value(), EAGAIN);
        EXPECT_TRUE(says(error.what(), "can't fork worker 0")) << error.what();
      }
    }
  });
}

TEST_F(LoaderWorkers, OneThatHangsRunsIntoTheTimeout) {
  DataLoaderOptions options = kForks;
  options.timeout = std::chrono::milliseconds(100);
  const auto loader = make_data_loader<OrderSampler>(FaultyItems(Fault::kHang, 9, 1), options);
  try {
    test::all_batches(*loader);
    ADD_FAILURE() << "no error";
  } catch (const TimeoutError& error) {
    EXPECT_TRUE(says(error.what(), "is in item 9")) << error.what();
    EXPECT_TRUE(says(error.what(), "(process ")) << error.what();
  }
}

TEST_F(LoaderWorkers, OneThatHangsIsReported) {
  const test::CapturedStderr captured;
  DataLoaderOptions options = kForks;
  options.late_after = std::chrono::milliseconds(10);
  options.timeout = std::chrono::milliseconds(200);
  const auto loader = make_data_loader<OrderSampler>(FaultyItems(Fault::kHang, 9, 1), options);
  captured.begin();
  EXPECT_THROW(test::all_batches(*loader), TimeoutError);
  EXPECT_TRUE(says(captured.text(), "retinue: DataLoader: the loop has waited 0")) << captured.text();
  EXPECT_TRUE(says(captured.text(), ") is in item 9\n")) << captured.text();
  captured.clear();
  options.late_after = std::chrono::nanoseconds(0);
  const auto silent = make_data_loader<OrderSampler>(FaultyItems(Fault::kHang, 9, 1), options);
  EXPECT_THROW(test::all_batches(*silent), TimeoutError);
  EXPECT_EQ(captured.text(), "");
}

TEST_F(LoaderWorkers, ALoopMayEndEarly) {
  for (const WorkerKind kind : {WorkerKind::kThreads, WorkerKind::kProcesses})
    for (std::size_t steps = 0; steps < 10; ++steps) {
      DataLoaderOptions options = kForks;
      options.kind = kind;
      const auto loader = make_data_loader<OrderSampler>(test::CountedItems(kItems), options);
      for (int pass = 0; pass < 2; ++pass) {
        std::size_t step = 0;
        for (auto& batch : *loader) {
          EXPECT_EQ(batch.target[0].item<std::int64_t>(), static_cast<std::int64_t>(4 * step));
          EXPECT_EQ(loader->consumed(), 4 * (step + 1));
          if (step++ == steps) break;
        }
      }
    }
}

/// Tells when all processes that hold its write end have ended.
struct EndOfProcesses {
  EndOfProcesses() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw SystemError("a pipe", errno);
    read_end = FileDescriptor(ends[0]);
    write_end = FileDescriptor(ends[1]);
  }
  void await() {
    write_end = FileDescriptor();
    char byte;
    EXPECT_EQ(read(read_end.get(), &byte, 1), 0);
  }

  FileDescriptor read_end, write_end;
};

TEST_F(LoaderWorkers, TheyEndWithTheLoader) {
  EndOfProcesses end;
  { const auto loader = make_data_loader<OrderSampler>(FaultyItems(Fault::kHang, 0, 0), kForks); }
  end.await();
}

TEST(LoaderWorkersOfARank, TheyEndWithItsProcess) {
  EndOfProcesses end;
  const test::ForkShared<std::atomic<bool>> hangs;
  test::run_ranks(1,
                  [&](const JobGroup& members) {
                    JobMemory::set_current(members.memory);
                    at::set_num_threads(1);
                    DataLoaderOptions options = kForks;
                    options.batch_size = 1;
                    const auto loader = make_data_loader<OrderSampler>(FaultyItems(Fault::kHang, 3, 9), options);
                    auto at = loader->begin();
                    for (int i = 0; i < 2; ++i) ++at;
                    raise(SIGKILL);
                  },
                  {.killed = {0}});
  end.await();
}

TEST_F(LoaderWorkers, TheyMayBeForkedBesideOtherThreads) {
  torch::rand({1000, 1000}).mm(torch::rand({1000, 1000}));
  std::atomic<bool> ends{false};
  std::thread other([&] {
    while (!ends) torch::rand({100, 100}).mm(torch::rand({100, 100}));
  });
  for (int i = 0; i < 10; ++i) {
    const auto loader = make_data_loader<OrderSampler>(test::CountedItems(kItems), kForks);
    EXPECT_TRUE(test::are_equal(test::all_batches(*loader), right_batches()));
  }
  ends = true;
  other.join();
}

}  // namespace
}  // namespace retinue
