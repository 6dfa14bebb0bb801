#include "retinue/torch/run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "retinue/launch/spawn.h"
#include "retinue/process/failure.h"
#include "retinue/store/tcp_store.h"
#include "retinue/torch/groups.h"
#include "support/usage_error.h"

namespace retinue {
namespace {

struct Config {
  int ranks = 0;
  int base = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(ranks, base);
  }
};

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

/// The sum over ranks of base + rank.
int train(const ProcessGroup& group, const Config& config) {
  require(group->getSize() == config.ranks, "the world's size");
  at::Tensor sum = torch::full({1}, config.base + group->getRank(), torch::kInt);
  all_reduce(sum, group);
  return sum.item<int>();
}

void fail(const Config& config) {
  throw std::runtime_error(fmt::format("no data for {} ranks", config.ranks));
}

ProcessGroup kept;
int keep(const ProcessGroup& group, Config /*config*/) {
  kept = group;
  throw std::runtime_error("after all");
}

int in_one_line(RankContext& context, const Config& config) {
  return run<train>(context, config);
}

TEST(Run, IsAnEntryOfSpawn) {
  ProcessContext ranks = spawn<run<train>>({.nprocs = 3}, RunOptions{}, Config{.ranks = 3, .base = 10});
  const RunResult result = ranks.wait();
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(result.value<int>(rank), 33);
}

TEST(Run, IsOneLineInARank) {
  ProcessContext ranks = spawn<in_one_line>({.nprocs = 2}, Config{.ranks = 2, .base = 5});
  EXPECT_EQ(ranks.wait().value<int>(1), 11);
}

std::string say_where(RankContext& context) {
  if (context.rank() == 1) return {};  // And so never comes.
  try {
    run<train>(context, Config{.ranks = 2});
    return "it ran";
  } catch (const PeerLost& error) {
    return error.what();
  }
}

TEST(Run, SaysWhereARankWaitsForOthers) {
  ProcessContext ranks = spawn<say_where>({.nprocs = 2});
  const auto text = ranks.wait().value<std::string>(0);
  EXPECT_NE(text.find("rank 0 waits in the opening of the group at "), std::string::npos) << text;
  EXPECT_NE(text.find("run_main_test.cpp:"), std::string::npos) << text;
}

TEST(Run, LetsErrorsThrough) {
  try {
    spawn<run<fail>>({.nprocs = 2}, RunOptions{}, Config{.ranks = 2});
    ADD_FAILURE() << "the ranks failed";
  } catch (const ProcessRaisedException& error) {
    EXPECT_NE(std::string(error.what()).find("no data for 2 ranks"), std::string::npos) << error.what();
  }
}

TEST(Run, LeavesTheGroupHoweverTheCallEnds) {
  EXPECT_THROW(run<keep>(RunOptions{}, Config{}), std::runtime_error);
  at::Tensor tensor = torch::ones({1});
  EXPECT_THROW(all_reduce(tensor, kept), Closed);
  kept.reset();
}

TEST(Run, JoinsTheRanksOfSeveralShards) {
  setenv("RETINUE_TOKEN", "of the test", 1);
  const int port = TcpStore({.port = 0, .is_server = true}).port();
  RunOptions options{.init_method = fmt::format("tcp://127.0.0.1:{}", port), .num_shards = 2};
  const Config config{.ranks = 4, .base = 0};
  ProcessContext shard0 = spawn<run<train>>({.nprocs = 2, .join = false}, options, config);
  options.shard_id = 1;
  ProcessContext shard1 = spawn<run<train>>({.nprocs = 2, .join = false}, options, config);
  for (ProcessContext* shard : {&shard0, &shard1}) {
    const RunResult result = shard->wait();
    for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(result.value<int>(rank), 6);
  }
}

TEST(Run, RefusesAPlaceThatMakesNoSense) {
  const auto text_of = [](const RunOptions& options) {
    return test::usage_error_of([&] { run<train>(options, Config{.ranks = 1}); });
  };
  EXPECT_NE(text_of({.local_rank = 1}).find("local_rank is 1 with num_proc 1"), std::string::npos);
  EXPECT_NE(text_of({.shard_id = -1}).find("shard_id is -1"), std::string::npos);
  EXPECT_NE(text_of({.num_proc = 0}).find("num_proc 0"), std::string::npos);
  EXPECT_NE(text_of({.backend = "mpi"}).find("mpi"), std::string::npos);
}

}  // namespace
}  // namespace retinue
