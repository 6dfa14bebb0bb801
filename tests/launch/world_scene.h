#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "retinue/collective/communicator.h"
#include "retinue/ipc/job_group.h"
#include "retinue/store/tcp_store.h"

namespace retinue::test {

using Variables = std::map<std::string, std::string>;

/// Of a process that no launcher started, but for `more`.
inline void set_environment(const Variables& more) {
  for (const char* name : {"RANK",
                           "WORLD_SIZE",
                           "LOCAL_RANK",
                           "MASTER_ADDR",
                           "MASTER_PORT",
                           "OMPI_COMM_WORLD_RANK",
                           "OMPI_COMM_WORLD_SIZE",
                           "PMI_RANK",
                           "PMI_SIZE",
                           "SLURM_PROCID",
                           "SLURM_STEP_NUM_TASKS",
                           "PMIX_NAMESPACE",
                           "SLURM_JOB_ID",
                           "SLURM_STEP_ID",
                           "TORCHELASTIC_USE_AGENT_STORE",
                           "TORCHELASTIC_RUN_ID",
                           "TORCHELASTIC_RESTART_COUNT",
                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                           "MPI_LOCALNRANKS",
                           "LOCAL_WORLD_SIZE",
                           "SLURM_STEP_NUM_NODES"})
    unsetenv(name);
  setenv("RETINUE_TOKEN", "of the test", 1);
  for (const auto& [name, value] : more) setenv(name.c_str(), value.c_str(), 1);
}

/// A port that was free a moment ago.
inline int free_port() {
  setenv("RETINUE_TOKEN", "of the test", 1);
  return TcpStore({.port = 0, .is_server = true}).port();
}

/// A name that no file has.
inline std::string free_path(const std::string& name) {
  return std::filesystem::temp_directory_path() / fmt::format("retinue-test-{}-{}", name, getpid());
}

inline void expect_works(const JobGroup& group, int rank, int size) {
  Communicator communicator(group);
  EXPECT_EQ(communicator.rank(), rank);
  ASSERT_EQ(communicator.size(), size);
  std::vector<int> ranks(static_cast<std::size_t>(size));
  communicator.all_gather(std::span<const int>(&rank, 1), std::span(ranks));
  for (int i = 0; i < size; ++i) EXPECT_EQ(ranks[static_cast<std::size_t>(i)], i);
}

}  // namespace retinue::test
