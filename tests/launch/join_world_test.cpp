#include "retinue/launch/join_world.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "launch/strangers.h"
#include "launch/world_scene.h"
#include "retinue/base/error.h"
#include "retinue/store/tcp_store.h"
#include "support/says.h"
#include "support/usage_error.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

TEST(JoinWorld, OverTcp) {
  const std::string method = fmt::format("tcp://localhost:{}", free_port());
  run_strangers(4, [&](int rank) {
    set_environment({});
    const WorldOptions options{.init_method = method, .world_size = 4, .rank = rank};
    const JobGroup group = join_world(options);
    EXPECT_TRUE(group.name.starts_with("world")) << group.name;
    expect_works(group, rank, 4);
    const JobGroup again = join_world(options);
    EXPECT_EQ(again.memory, group.memory);
    EXPECT_NE(again.name, group.name);
    expect_works(again, rank, 4);
  });
}

TEST(JoinWorld, OverTcpWithRanksInTheMethod) {
  const int port = free_port();
  run_strangers(2, [&](int rank) {
    set_environment({});
    expect_works(join_world({.init_method = fmt::format("tcp://127.0.0.1:{}?rank={}&world_size=2", port, rank)}), rank,
                 2);
  });
}

TEST(JoinWorld, ByAFileThatIsGoneAfterwards) {
  const std::string path = free_path("world");
  run_strangers(3, [&](int rank) {
    set_environment({{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "3"}});
    expect_works(join_world({.init_method = "file://" + path}), rank, 3);
  });
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(JoinWorld, RefusesAFileOfAnEarlierJobByName) {
  const std::string path = free_path("left");
  std::ofstream(path) << "an earlier job's";
  run_strangers(2, [&](int rank) {
    set_environment({});
    const std::string text = usage_error_of(
        [&] { join_world({.init_method = "file://" + path, .world_size = 2, .rank = rank, .timeout = 10s}); });
    EXPECT_TRUE(says(text, path)) << text;
  });
  EXPECT_TRUE(std::filesystem::remove(path));
}

TEST(JoinWorld, OfTheEnvironmentAtMasterAddr) {
  const std::string port = std::to_string(free_port());
  run_strangers(2, [&](int rank) {
    set_environment(
        {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
    expect_works(join_world(), rank, 2);
  });
}

/// Ranks that one mpirun or srun started know each other by it.
TEST(JoinWorld, OfLaunchersWithoutAnAddress) {
  const std::vector<Variables> launchers = {{{"OMPI_COMM_WORLD_RANK", "r"},
                                             {"OMPI_COMM_WORLD_SIZE", "3"},
                                             {"PMIX_NAMESPACE", fmt::format("test/{}@1", getpid())}},
                                            {{"PMI_RANK", "r"}, {"PMI_SIZE", "3"}},
                                            {{"RANK", "r"},
                                             {"WORLD_SIZE", "3"},
                                             {"MASTER_ADDR", "127.0.0.1"},
                                             {"MASTER_PORT", "1"},
                                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                             {"TORCHELASTIC_RUN_ID", fmt::format("test {}", getpid())}},
                                            {{"SLURM_PROCID", "r"},
                                             {"SLURM_STEP_NUM_TASKS", "3"},
                                             {"SLURM_JOB_ID", std::to_string(getpid())},
                                             {"SLURM_STEP_ID", "0"}}};
  for (Variables variables : launchers)
    run_strangers(3, [&](int rank) {
      for (auto& [name, value] : variables)
        if (value == "r") value = std::to_string(rank);
      set_environment(variables);
      expect_works(join_world(), rank, 3);
      expect_works(join_world(), rank, 3);
    });
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::temp_directory_path())) {
    const std::string name = entry.path().filename();
    EXPECT_FALSE(name.starts_with("retinue-") && says(name, "-world") && says(name, std::to_string(getpid()))) << name;
  }
}

TEST(JoinWorld, OfALauncherOnSeveralHostsNeedsAnAddress) {
  const std::vector<Variables> launchers = {
      {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
      {{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}},
      {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_NUM_NODES", "2"}},
      {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}}};
  for (const Variables& variables : launchers) {
    set_environment(variables);
    const std::string text = usage_error_of([] { join_world(); });
    EXPECT_TRUE(says(text, "some of the 4 ranks are on other hosts")) << text;
    EXPECT_TRUE(says(text, "MASTER_ADDR")) << text;
  }
  set_environment({});
}

TEST(JoinWorld, ByAStoreOfTheProgramsOwn) {
  const int port = free_port();
  run_strangers(3, [&](int rank) {
    set_environment({{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "3"}});
    const auto store = std::make_shared<TcpStore>(TcpStoreOptions{.port = port, .is_server = rank == 0});
    const JobGroup group = join_world({.store = store, .name = "of my own"});
    EXPECT_TRUE(group.name.starts_with("of my own")) << group.name;
    expect_works(group, rank, 3);
    if (rank == 0) {
      store->wait({"1 is done", "2 is done"});
    } else {
      store->set(fmt::format("{} is done", rank), "");
    }
  });
}

TEST(JoinWorld, AloneNeedsNoPlaceToMeet) {
  run_strangers(1, [](int) {
    set_environment({});
    expect_works(join_world(), 0, 1);
    expect_works(join_world({.init_method = "tcp://nowhere.invalid:1", .world_size = 1, .rank = 0}), 0, 1);
  });
}

TEST(JoinWorld, RefusesWhatMakesNoSense) {
  set_environment({});
  const auto text_of = [](const WorldOptions& options) { return usage_error_of([&] { join_world(options); }); };
  for (const char* method : {"udp://there:1", "tcp://there", "tcp://:29500", "tcp://there:0", "tcp://there:70000",
                             "file://here", "file://", "tcp://there:1?rank=x", "tcp://there:1?color=2", ""})
    EXPECT_TRUE(says(text_of({.init_method = method, .world_size = 2, .rank = 0}), "init method")) << method;
  EXPECT_TRUE(says(text_of({.world_size = 2, .rank = 2}), "there is no rank 2 in a world of 2 ranks"));
  EXPECT_TRUE(says(text_of({.world_size = 0, .rank = 0}), "rank 0 of 0"));
  EXPECT_TRUE(
      says(text_of({.world_size = 65'537, .rank = 0}), "a world of 65537 ranks is too large: the maximum is 65536"));
  EXPECT_TRUE(says(text_of({.timeout = 0s}), "timeout"));
  EXPECT_TRUE(says(text_of({.late_after = -1s}), "late_after"));
  for (const WorldOptions& options :
       {WorldOptions{.init_method = "tcp://there:1"}, WorldOptions{.world_size = 2}, WorldOptions{.rank = 0}})
    EXPECT_TRUE(says(text_of(options), "the rank and the world size of this process are unknown"));
  EXPECT_TRUE(says(text_of({.world_size = 2, .rank = 0}), "set MASTER_ADDR and MASTER_PORT"));
  set_environment({{"MASTER_ADDR", "127.0.0.1"}});
  EXPECT_TRUE(says(text_of({.world_size = 2, .rank = 0}), "set MASTER_PORT"));
  set_environment({{"RANK", "2"}});
  EXPECT_TRUE(says(text_of({}), "RANK=2, but not WORLD_SIZE: set WORLD_SIZE too"));
  set_environment({});
}

TEST(WorldPlace, IsWhatTheEnvironmentSays) {
  set_environment({});
  EXPECT_EQ(world_place_of_environment().world_size, 1);
  set_environment({{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "9"}});
  WorldPlace place = world_place_of_environment();
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.world_size, 4);
  EXPECT_EQ(place.local_rank, 1);
  unsetenv("LOCAL_RANK");
  // A batch script of Slurm's is no rank.
  set_environment({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}});
  EXPECT_EQ(world_place_of_environment().world_size, 1);
  const auto text_of = [](const Variables& variables) {
    set_environment(variables);
    return usage_error_of([] { world_place_of_environment(); });
  };
  EXPECT_TRUE(says(text_of({{"WORLD_SIZE", "many"}}), "WORLD_SIZE is \"many\""));
  EXPECT_TRUE(says(text_of({{"WORLD_SIZE", "2"}}), "set RANK too"));
  EXPECT_TRUE(says(text_of({{"WORLD_SIZE", "2"}, {"RANK", "2"}}), "ranks are 0 to 1"));
  EXPECT_TRUE(says(text_of({{"PMI_SIZE", "2"}, {"PMI_RANK", "-1"}}), "PMI_RANK is \"-1\""));
  set_environment({});
}

}  // namespace
}  // namespace retinue::test
