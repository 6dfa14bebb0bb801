#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "launch/strangers.h"
#include "retinue/collective/communicator.h"
#include "retinue/launch/join_world.h"
#include "retinue/store/tcp_store.h"

namespace retinue::test {
namespace {

/// Says how long it took after the last of them called.
TEST(JoinWorldOfMany, SixtyFourRanksMeetOverTcp) {
  constexpr int kRanks = 64;
  setenv("RETINUE_TOKEN", "of the test", 1);
  const int port = TcpStore({.port = 0, .is_server = true}).port();
  const std::string method = fmt::format("tcp://127.0.0.1:{}", port);
  const Table table(kRanks);
  run_strangers(kRanks, [&](int rank) {
    char unused = 0;
    char all[kRanks];
    table.all_gather(rank, &unused, all, 1);
    const auto start = std::chrono::steady_clock::now();
    const JobGroup group = join_world({.init_method = method, .world_size = kRanks, .rank = rank});
    const std::chrono::duration<double> met = std::chrono::steady_clock::now() - start;
    Communicator communicator(group);
    const std::chrono::duration<double> opened = std::chrono::steady_clock::now() - start;
    int sum = 1;
    communicator.all_reduce(std::span(&sum, 1));
    EXPECT_EQ(sum, kRanks);
    if (rank == 0)
      fmt::print("{} ranks met in {:.3f} s, and had a communicator after {:.3f} s\n", kRanks, met.count(),
                 opened.count());
  });
}

}  // namespace
}  // namespace retinue::test
