#include <gtest/gtest.h>

#include <string>

#include "mpi/mpi_run.h"

namespace {

TEST(MpiHostsExample, SumsAsMpi) {
  retinue::test::MpiRun run(4, "mpi_hosts");
  const std::string output = run.read_all();
  EXPECT_EQ(run.wait_for_all(), 0) << output;
  EXPECT_EQ(output, "mpi_hosts: ok ranks=4 numbers=100000\n");
}

}  // namespace
