// What ranks are given at setup: environment, directory, threads, places.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "os/machine/cpus.h"
#include "retinue/launch/spawn.h"
#include "support/start_methods.h"
#include "support/usage_error.h"

using retinue::CpuAffinity;
using retinue::Program;
using retinue::RankContext;
using retinue::SpawnOptions;
using retinue::test::EachStartMethod;
using retinue::test::usage_error_of;

namespace {

std::string value_or_none(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "none";
}

std::vector<std::string> values_of(RankContext&, const std::vector<std::string>& names) {
  std::vector<std::string> values;
  for (const std::string& name : names) values.push_back(value_or_none(name.c_str()));
  return values;
}

std::map<int, std::vector<std::string>> values_in_ranks(SpawnOptions options, const std::vector<std::string>& names) {
  options.join = false;
  return retinue::spawn<values_of>(options, names).wait().values<std::vector<std::string>>();
}

TEST_P(EachStartMethod, GivesRanksTheirOwnEnvironment) {
  setenv("RETINUE_TEST_BOTH", "the caller's", 1);
  const auto values =
      values_in_ranks({.nprocs = 2,
                       .start_method = GetParam(),
                       .environment = {{1, {{"RETINUE_TEST_BOTH", "rank 1's"}, {"RETINUE_TEST_OWN", "a=b"}}}}},
                      {"RETINUE_TEST_BOTH", "RETINUE_TEST_OWN", "RANK"});
  unsetenv("RETINUE_TEST_BOTH");
  EXPECT_EQ(values.at(0), std::vector<std::string>({"the caller's", "none", "0"}));
  EXPECT_EQ(values.at(1), std::vector<std::string>({"rank 1's", "a=b", "1"}));
}

std::string directory_of(RankContext&) {
  return std::filesystem::current_path();
}

/// Variables by which ranks are told what they are, in a program that is none.
std::string bootstrap_of_a_child() {
  FILE* const pipe = popen("env | grep ^RETINUE_BOOTSTRAP", "r");
  std::string found;
  for (int c = 0; (c = fgetc(pipe)) != EOF;) found += static_cast<char>(c);
  pclose(pipe);
  return found;
}

std::string bootstrap_of_a_ranks_child(RankContext&) {
  return bootstrap_of_a_child();
}

TEST_P(EachStartMethod, HandsItsOwnVariableToNoOtherChild) {
  auto ranks = retinue::spawn<bootstrap_of_a_ranks_child>({.nprocs = 2, .start_method = GetParam(), .join = false});
  for (const auto& [rank, found] : ranks.wait().values<std::string>()) EXPECT_EQ(found, "") << rank;
  EXPECT_EQ(bootstrap_of_a_child(), "");
}

TEST_P(EachStartMethod, StartsRanksInADirectory) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path("/usr");
  for (const std::string directory : {"/usr/lib", "lib"}) {
    auto ranks = retinue::spawn<directory_of>({.start_method = GetParam(), .join = false, .directory = directory});
    EXPECT_EQ(ranks.wait().value<std::string>(0), "/usr/lib");
  }
  EXPECT_EQ(std::filesystem::current_path(), "/usr");
  std::filesystem::current_path(before);
}

std::vector<int> cpus_and_threads(RankContext& context) {
  std::vector<int> numbers = retinue::allowed_cpus();
  numbers.push_back(context.cpus_per_rank());
  return numbers;
}

TEST_P(EachStartMethod, BindsRanksToCpus) {
  const int last = retinue::allowed_cpus().back();
  auto ranks =
      retinue::spawn<cpus_and_threads>({.nprocs = 2,
                                        .start_method = GetParam(),
                                        .join = false,
                                        .cpu_affinity = CpuAffinity::lists({{last}, retinue::allowed_cpus()})});
  const auto values = ranks.wait().values<std::vector<int>>();
  EXPECT_EQ(values.at(0), std::vector<int>({last, 1}));
  std::vector<int> all = retinue::allowed_cpus();
  all.push_back(static_cast<int>(all.size()));
  EXPECT_EQ(values.at(1), all);
}

TEST_P(EachStartMethod, SpreadsRanksOverCpus) {
  const std::vector<int> all = retinue::allowed_cpus();
  if (all.size() < 2) GTEST_SKIP() << "needs two CPUs";
  for (const auto& affinity : {CpuAffinity::spread(), CpuAffinity::compact()}) {
    auto ranks = retinue::spawn<cpus_and_threads>(
        {.nprocs = 2, .start_method = GetParam(), .join = false, .threads_per_rank = 1, .cpu_affinity = affinity});
    const auto values = ranks.wait().values<std::vector<int>>();
    ASSERT_EQ(values.at(0).size(), 2u);
    ASSERT_EQ(values.at(1).size(), 2u);
    EXPECT_NE(values.at(0)[0], values.at(1)[0]);
    EXPECT_EQ(values.at(0)[1], 1);
  }
}

TEST_P(EachStartMethod, TellsThreadsByContextAndVariable) {
  const std::string before = value_or_none("OMP_NUM_THREADS");
  setenv("OMP_NUM_THREADS", "5", 1);
  auto values = values_in_ranks({.start_method = GetParam(), .threads_per_rank = 3}, {"OMP_NUM_THREADS"});
  EXPECT_EQ(values.at(0)[0], "3");
  values = values_in_ranks(
      {.start_method = GetParam(), .environment = {{0, {{"OMP_NUM_THREADS", "7"}}}}, .threads_per_rank = 3},
      {"OMP_NUM_THREADS"});
  EXPECT_EQ(values.at(0)[0], "7");
  values = values_in_ranks({.start_method = GetParam()}, {"OMP_NUM_THREADS"});
  EXPECT_EQ(values.at(0)[0], "5");
  unsetenv("OMP_NUM_THREADS");
  auto ranks = retinue::spawn<cpus_and_threads>({.start_method = GetParam(), .join = false, .threads_per_rank = 3});
  EXPECT_EQ(ranks.wait().value<std::vector<int>>(0).back(), 3);
  if (before != "none") setenv("OMP_NUM_THREADS", before.c_str(), 1);
}

// Before main, and so before Runtime makes the guardian: as in a program that is linked with OpenMP.
void* const kOpenMp = dlopen("libgomp.so.1", RTLD_NOW | RTLD_GLOBAL);

int openmp_threads(RankContext&) {
  return reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"))();
}

TEST_P(EachStartMethod, TellsThreadsToOpenMpByCall) {
  if (kOpenMp == nullptr) GTEST_SKIP() << "there is no libgomp here";
  const auto threads = [](SpawnOptions options) {
    options.join = false;
    options.start_method = GetParam();
    return retinue::spawn<openmp_threads>(options).wait().value<int>(0);
  };
  EXPECT_EQ(threads({.threads_per_rank = 3}), 3);
  EXPECT_EQ(threads({.cpu_affinity = CpuAffinity::lists({{retinue::allowed_cpus().back()}})}), 1);
  EXPECT_EQ(threads({.environment = {{0, {{"OMP_NUM_THREADS", "6,2"}}}}}), 6);
}

int memory_nodes_of(RankContext&) {
  std::ifstream maps("/proc/self/numa_maps");
  int bound = 0;
  for (std::string line; std::getline(maps, line);) bound += line.find(" bind:") != std::string::npos ? 1 : 0;
  return bound;
}

TEST_P(EachStartMethod, BindsMemoryToANodeThatExists) {
  const std::vector<int> nodes = retinue::allowed_memory_nodes();
  auto ranks = retinue::spawn<memory_nodes_of>(
      {.nprocs = 2, .start_method = GetParam(), .join = false, .memory_nodes = {nodes.back()}});
  const retinue::RunResult result = ranks.wait();
  if (nodes.size() == 1) {
    EXPECT_TRUE(result.ok()) << "all memory is on the one node anyway";
  } else if (result.ok()) {
    EXPECT_GT(result.value<int>(1), 0);
  } else {  // A container that forbids it says so.
    EXPECT_NE(result.failures()[0].message.find("set_mempolicy"), std::string::npos) << result.failures()[0].message;
  }
}

std::string error_of_a_spawn(RankContext&) {
  return usage_error_of([] { retinue::spawn<directory_of>({}); }) + "; " + usage_error_of([] {
           retinue::start_processes({}, {Program{"true", {}, {}}});
         });
}

TEST_P(EachStartMethod, DaemonsMayHaveNoChildren) {
  auto ranks = retinue::spawn<error_of_a_spawn>({.start_method = GetParam(), .join = false, .daemon = true});
  const std::string errors = ranks.wait().value<std::string>(0);
  const auto first = errors.find("daemonic processes are not allowed to have children");
  EXPECT_NE(first, std::string::npos) << errors;
  EXPECT_NE(errors.find("daemonic processes", first + 1), std::string::npos) << errors;
  auto others = retinue::spawn<error_of_a_spawn>({.start_method = GetParam(), .join = false});
  EXPECT_EQ(others.wait().value<std::string>(0), "no UsageError; no UsageError");
}

INSTANTIATE_TEST_SUITE_P(StartMethods, EachStartMethod, retinue::test::all_start_methods(),
                         retinue::test::start_method_name);

void nothing(RankContext&) {}

TEST(RankOptions, AreCheckedBeforeAnythingStarts) {
  const auto error = [](const SpawnOptions& options) {
    return usage_error_of([&] { retinue::spawn<nothing>(options); });
  };
  EXPECT_NE(error({.nprocs = 2, .environment = {{2, {}}}}).find("there is no rank 2, only 0 to 1"), std::string::npos);
  EXPECT_NE(error({.environment = {{0, {{"A=B", ""}}}}}).find("'A=B' cannot be a variable"), std::string::npos);
  EXPECT_NE(error({.directory = "/no/such/folder"}).find("'/no/such/folder': No such file"), std::string::npos);
  EXPECT_NE(error({.directory = "/etc/passwd"}).find("is not a directory"), std::string::npos);
  EXPECT_NE(error({.threads_per_rank = -1}).find("threads_per_rank is -1"), std::string::npos);
  EXPECT_NE(error({.cpu_affinity = CpuAffinity::lists({{4711}})}).find("CPU 4711, but this process may only use"),
            std::string::npos);
  EXPECT_NE(error({.memory_nodes = {99}}).find("of node 99, but this process may only use nodes"), std::string::npos);
  EXPECT_NE(error({.nprocs = 3, .memory_nodes = {0, 0}}).find("2 nodes for 3 ranks"), std::string::npos);
}

TEST(RankOptions, ProgramsGetOmpNumThreads) {
  const std::string before = value_or_none("OMP_NUM_THREADS");
  unsetenv("OMP_NUM_THREADS");
  const auto run = [](const retinue::StartOptions& options, const std::string& test) {
    retinue::start_processes(options, {Program{"sh", {"-c", test}, {}}}).join();
  };
  const std::string all = std::to_string(retinue::usable_cpus());
  EXPECT_NO_THROW(run({}, "test $OMP_NUM_THREADS = " + all));
  EXPECT_NO_THROW(run({.threads_per_rank = 3}, "test $OMP_NUM_THREADS = 3"));
  setenv("OMP_NUM_THREADS", "9", 1);
  EXPECT_NO_THROW(run({}, "test $OMP_NUM_THREADS = 9"));
  EXPECT_NO_THROW(run({.directory = "/usr"}, "test $(pwd) = /usr"));
  EXPECT_THROW(run({}, "test $OMP_NUM_THREADS = 8"), retinue::ProcessExitedException);
  unsetenv("OMP_NUM_THREADS");
  if (before != "none") setenv("OMP_NUM_THREADS", before.c_str(), 1);
}

}  // namespace
