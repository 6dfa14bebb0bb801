#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "launch/strangers.h"
#include "retinue/base/error.h"
#include "retinue/store/tcp_store.h"
#include "retinue/torch/c10d_store.h"
#include "retinue/torch/groups.h"
#include "retinue/torch/process_group.h"
#include "store/places.h"
#include "support/captured_stderr.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "support/wait_until.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;
using test::run_strangers;
using test::usage_error_of;

/// All ranks of a world are there, in memory that they share.
void expect_works(const ProcessGroup& group, int rank, int size) {
  EXPECT_EQ(group->getRank(), rank);
  ASSERT_EQ(group->getSize(), size);
  at::Tensor sum = torch::full({1000}, static_cast<float>(rank + 1));
  all_reduce(sum, group);
  EXPECT_TRUE(torch::equal(sum, torch::full({1000}, static_cast<float>(size * (size + 1) / 2))));
  barrier(group);
}

TEST(InitProcessGroup, MeetsOverTcp) {
  setenv("RETINUE_TOKEN", "of the test", 1);
  const std::string method = fmt::format("tcp://127.0.0.1:{}", TcpStore({.port = 0, .is_server = true}).port());
  run_strangers(3, [&](int rank) {
    const ProcessGroup group =
        init_process_group({.backend = "cpu:shm", .init_method = method, .world_size = 3, .rank = rank});
    expect_works(group, rank, 3);
    const ProcessGroup named =
        init_process_group({.init_method = method, .group_name = "second", .world_size = 3, .rank = rank});
    EXPECT_EQ(named->getGroupName(), "second");
    expect_works(named, rank, 3);
    const ProcessGroup part = new_group({0, 2}, group);
    if (part) expect_works(part, rank / 2, 2);
  });
}

TEST(InitProcessGroup, ReportsRanksThatHaveNotCome) {
  for (const std::string backend : {"shm", "gloo"}) {
    const test::CapturedStderr captured;
    setenv("RETINUE_TOKEN", "of the test", 1);
    const std::string method = fmt::format("tcp://127.0.0.1:{}", TcpStore({.port = 0, .is_server = true}).port());
    run_strangers(3, [&](int rank) {
      captured.begin();
      const auto is_told = [&] {
        return test::says(captured.text(), " s in the opening of the group at ") &&
               test::says(captured.text(), "init_process_group_test.cpp:") &&
               test::says(captured.text(), "  rank 2 has not joined yet; this wait ends in ");
      };
      EXPECT_TRUE(rank != 2 || test::wait_until(is_told)) << captured.text();
      const ProcessGroup group = init_process_group(
          {.backend = backend, .init_method = method, .late_after = 300ms, .world_size = 3, .rank = rank});
      expect_works(group, rank, 3);
      barrier(group);
    });
  }
}

/// The files of groups over gloo are there as long as the groups.
TEST(InitProcessGroup, MeetsAtOneFileAgainAndAgain) {
  const std::string path = fmt::format("{}again-{}", testing::TempDir(), getpid());
  for (const std::string backend : {"shm", "gloo"}) {
    run_strangers(3, [&](int rank) {
      for (int i = 0; i < 5; ++i) {
        ProcessGroup group =
            init_process_group({.backend = backend, .init_method = "file://" + path, .world_size = 3, .rank = rank});
        expect_works(group, rank, 3);
        destroy_process_group(group);
      }
    });
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

TEST(InitProcessGroup, RefusesRanksThatCountDifferently) {
  for (const std::string backend : {"shm", "gloo"}) {
    setenv("RETINUE_TOKEN", "of the test", 1);
    const std::string method = fmt::format("tcp://127.0.0.1:{}", TcpStore({.port = 0, .is_server = true}).port());
    run_strangers(2, [&](int rank) {
      const std::string text = usage_error_of([&] {
        init_process_group({.backend = backend, .init_method = method, .world_size = 2 + rank, .rank = rank});
      });
      EXPECT_TRUE(test::says(text, "give all processes the same world size")) << text;
    });
  }
}

TEST(InitProcessGroup, MeetsAtTheAgentOfTorchrun) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto agent = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  for (const char* restarts : {"0", "1"})
    run_strangers(2, [&](int rank) {
      setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
      setenv("TORCHELASTIC_RESTART_COUNT", restarts, 1);
      setenv("MASTER_ADDR", "127.0.0.1", 1);
      setenv("MASTER_PORT", std::to_string(agent->getPort()).c_str(), 1);
      setenv("RANK", std::to_string(rank).c_str(), 1);
      setenv("WORLD_SIZE", "2", 1);
      expect_works(init_process_group(), rank, 2);
      expect_works(init_process_group({.group_name = "second"}), rank, 2);
    });
}

TEST(InitProcessGroup, SaysWhatNoAgentIsThere) {
  run_strangers(1, [&](int /*rank*/) {
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "none", 1);
    EXPECT_NE(usage_error_of([] { init_process_group(); }).find("MASTER_PORT=none"), std::string::npos);
  });
}

TEST(InitProcessGroup, RefusesBackendsThatAreNotThere) {
  const auto text_of = [](const std::string& backend) {
    return usage_error_of([&] { init_process_group({.backend = backend}); });
  };
  EXPECT_NE(text_of("mpi").find("\"mpi\""), std::string::npos);
  EXPECT_NE(text_of("cuda:shm").find("of device cpu, not for those of cuda"), std::string::npos);
  EXPECT_NE(text_of("cpu:nccl").find("of device cuda, not for those of cpu"), std::string::npos);
  EXPECT_NE(text_of("nccl,cuda:nccl").find("two backends for device cuda"), std::string::npos);
  EXPECT_NE(text_of("shm,cpu:shm").find("two backends for device cpu"), std::string::npos);
  EXPECT_NE(text_of("").find("backend \"\""), std::string::npos);
}

TEST(C10dStore, IsAStore) {
  C10dStore store(c10::make_intrusive<c10d::HashStore>());
  store.set("a", "1");
  store.set("b", std::string("\0two", 4));
  EXPECT_EQ(store.get("a"), "1");
  EXPECT_EQ(store.multi_get({"b", "a"}), (std::vector<std::string>{std::string("\0two", 4), "1"}));
  EXPECT_TRUE(store.multi_get({}).empty());
  EXPECT_EQ(store.add("a", 41), 42);
  EXPECT_EQ(store.compare_set("a", "42", "43"), "43");
  EXPECT_TRUE(store.check({"a", "b"}));
  EXPECT_FALSE(store.check({"c"}));
  store.wait({"a"});
  EXPECT_EQ(store.num_keys(), 2);
  EXPECT_TRUE(store.delete_key("b"));
  EXPECT_THROW(store.wait({"c"}, 20ms), TimeoutError);
  EXPECT_THROW(store.get("c", Deadline::after(20ms)), TimeoutError);
  const test::TemporaryFolder folder;
  C10dStore in_a_file(c10::make_intrusive<c10d::FileStore>(folder.file("c10d"), 2));
  EXPECT_THROW(in_a_file.wait({"c"}, 20ms), TimeoutError);
  EXPECT_THROW(C10dStore(nullptr), UsageError);
}

TEST(C10dStore, WaitsWithoutAWordOnStandardError) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto server = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  const test::CapturedStderr captured;
  run_strangers(1, [&](int /*rank*/) {
    options.port = server->getPort();
    options.isServer = false;
    C10dStore store(c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options));
    captured.begin();
    EXPECT_THROW(store.wait({"c"}, 20ms), TimeoutError);
    EXPECT_THROW(store.multi_get({"a", "b"}, Deadline::after(20ms)), TimeoutError);
    store.set("c", "1");
    EXPECT_EQ(store.get("c"), "1");
  });
  EXPECT_EQ(captured.text(), "");
}

/// Whether malloc maps a large block by itself, and so gives it back to the kernel. True of no second one, even without
/// the option: malloc maps only blocks that are larger than all that it unmapped before.
bool is_mapped_alone() {
  const std::size_t before = mallinfo2().hblkhd;
  const at::Tensor large = torch::empty({31 << 20}, torch::kUInt8);
  return mallinfo2().hblkhd > before;
}

/// Page faults of a loop that makes and drops six tensors of 8 MiB.
std::int64_t faults_of_steps() {
  const auto now = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  // More in all than what malloc keeps by itself, which is twice its largest block.
  const auto step = [] {
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < 6; ++i) tensors.push_back(torch::ones({2 << 20}));
  };
  for (int i = 0; i < 30; ++i) step();
  const std::int64_t before = now();
  for (int i = 0; i < 10; ++i) step();
  return now() - before;
}

TEST(InitProcessGroup, LetsMallocKeepWhatIsFreed) {
  if (test::is_sanitized()) GTEST_SKIP() << "malloc is the sanitizer's";
  for (const bool keeps : {true, false})
    test::run_ranks(1, [&](const JobGroup& members) {
      if (!keeps) setenv("RETINUE_KEEP_FREED_MEMORY", "0", 1);
      init_process_group(members);
      EXPECT_EQ(is_mapped_alone(), !keeps);
      if (keeps) {
        EXPECT_LT(faults_of_steps(), 40);
      }
    });
}

}  // namespace
}  // namespace retinue
