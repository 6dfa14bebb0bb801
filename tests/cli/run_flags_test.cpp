#include "run_flags.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "command_line.h"
#include "rank_plan.h"
#include "retinue/base/error.h"
#include "text_lists.h"
#include "usable_devices.h"

using namespace retinue;

namespace {

/// Parses as main() does.
RunOptions parse(const std::vector<std::string>& words) {
  CLI::App app;
  RunFlags flags;
  declare_run_flags(app, flags);
  CommandLine line = split_command_line(app, words);
  app.parse(std::vector<std::string>(line.flags.rbegin(), line.flags.rend()));
  return make_run_options(flags, line.program);
}

/// The message of the refusal; empty if there was none.
std::string refusal_of(const std::vector<std::string>& words) {
  try {
    parse(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

/// Sets a variable for a test's time.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

using Words = std::vector<std::string>;
constexpr int kCpus = 8;

Devices eight_cpus() {
  return {kCpus, {}};
}

std::vector<PlannedRank> plan(const RunOptions& options) {
  return plan_ranks(options, eight_cpus());
}

TEST(RunFlags, HasTheDefaultsOfTorchrun) {
  const RunOptions options = parse({"./program"});
  EXPECT_EQ(options.programs.size(), 1u);
  EXPECT_EQ(options.programs[0].count, "1");
  EXPECT_EQ(options.programs[0].role, "default");
  EXPECT_EQ(options.run_id, "none");
  EXPECT_EQ(options.master_addr, "127.0.0.1");
  EXPECT_FALSE(options.master_port);
  EXPECT_EQ(options.max_restarts, 0);
  EXPECT_EQ(options.redirects.of(0), Std::kNone);
  EXPECT_EQ(options.tee.of(0), Std::kNone);
  EXPECT_EQ(options.ending_signals, (std::vector{SIGTERM, SIGINT, SIGHUP, SIGQUIT}));
  EXPECT_EQ(options.shutdown_timeout, std::chrono::seconds(30));
}

TEST(RunFlags, TakesDashesAndUnderscores) {
  for (const char* flag : {"--nproc-per-node=3", "--nproc_per_node=3", "-n3"})
    EXPECT_EQ(parse({flag, "x"}).programs[0].count, "3") << flag;
  EXPECT_EQ(parse({"--max_restarts", "2", "x"}).max_restarts, 2);
  EXPECT_EQ(parse({"--tee", "0:1,12:3", "x"}).tee.of(12), Std::kAll);
  EXPECT_EQ(parse({"--signals_to_handle", "SIGUSR1,TERM", "x"}).ending_signals, (std::vector{SIGUSR1, SIGTERM}));
  EXPECT_EQ(parse({"--shutdown-timeout", "7", "x"}).shutdown_timeout, std::chrono::seconds(7));
}

TEST(RunFlags, AFlagGoesBeforeOwnVariablesAndTheseBeforeTorchruns) {
  const Variable torchruns("PET_MAX_RESTARTS", "1");
  EXPECT_EQ(parse({"x"}).max_restarts, 1);
  const Variable own("RETINUE_MAX_RESTARTS", "2");
  EXPECT_EQ(parse({"x"}).max_restarts, 2);
  EXPECT_EQ(parse({"--max-restarts", "3", "x"}).max_restarts, 3);
}

TEST(RunFlags, ReadsSwitchesFromVariables) {
  const Variable variable("PET_STANDALONE", "1");
  EXPECT_NE(parse({"x"}).run_id, "none");
  EXPECT_EQ(parse({"--rdzv-id", "mine", "x"}).run_id, "mine");
}

TEST(RunFlags, AllAfterTheProgramIsTheProgramsOwn) {
  const RunOptions options = parse({"-n", "2", "--no-python", "x", "--tee", "-n", "--", ":"});
  EXPECT_EQ(options.programs.size(), 1u);
  EXPECT_EQ(options.programs[0].command, (Words{"x", "--tee", "-n", "--", ":"}));
}

TEST(RunFlags, AColonBeforeACountBeginsAnotherProgram) {
  const RunOptions options = parse({"-n", "1", "a", ":", ":", "-n", "3", "--role=actor", "-m", "b", "-n", "4"});
  ASSERT_EQ(options.programs.size(), 2u);
  EXPECT_EQ(options.programs[0].command, (Words{"a", ":"}));
  EXPECT_EQ(options.programs[1].command, (Words{"b", "-n", "4"}));
  EXPECT_EQ(options.programs[1].form, CommandForm::kModule);
  EXPECT_EQ(options.programs[1].role, "actor");
  EXPECT_EQ(parse({"--", "a", ":", "-n", "3"}).programs[0].command, (Words{"a", ":", "-n", "3"}));
}

TEST(RunFlags, SaysWhatItCannotDo) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--nnodes", "2", "x"}, "one machine"},
      {{"--nnodes=1:4", "x"}, "one machine"},
      {{"--node-rank", "1", "x"}, "one machine"},
      {{"--rdzv-backend", "etcd", "x"}, "one machine"},
      {{"--rdzv-endpoint", "far.example:29400", "x"}, "one machine"},
      {{"--rdzv-conf", "is_host=false", "x"}, "one machine"},
      {{"--numa-binding", "gpu", "x"}, "--numa-binding 'gpu': give node, socket, exclusive or core-complex"},
      {{"--event-log-handler", "mine", "x"}, "--event-log-handler"},
      {{"--logs-specs", "mine", "x"}, "--logs-specs"},
      {{"--start-method", "thread", "x"}, "forkserver"},
      {{"--max-restarts", "-1", "x"}, "'-1' is not a whole number"},
      {{"--max-restarts", "2x", "x"}, "'2x' is not a whole number"},
      {{"--master-port", "65536", "x"}, "65535"},
      {{"--signals-to-handle", "SIGFOO", "x"}, "SIGFOO"},
      {{"--signals-to-handle", "SIGKILL", "x"}, "SIGKILL"},
      {{"--tee", "0:4", "x"}, "no stream 4"},
      {{"--wrap-ranks", "1", "x"}, "--wrap"},
      {{"--wrap", "gdb '", "x"}, "is not closed"},
      {{"--rdzv-id", "../up", "x"}, "slash"},
      {{"-m", "--no-python", "x"}, "mutually exclusive"},
      {{"--nproc", "2", "x"}, "did you mean --nproc-per-node"},
      {{"-n", "2"}, "program to run is missing"},
      {{"-n", "2", "--"}, "program to run is missing"},
      {{"x", ":", "-n", "2"}, "program to run is missing"},
      {{"x", ":", "-n", "2", "--log-dir", "y", "z"}, "flags of the whole job"}};
  for (const auto& [words, part] : cases)
    EXPECT_NE(refusal_of(words).find(part), std::string::npos) << part << ", but: " << refusal_of(words);
}

TEST(RunFlags, AcceptsAMeetingPointOnThisMachine) {
  for (const char* endpoint : {"localhost", "localhost:0", "127.0.0.1:29400", "[::1]:5", "::1"})
    EXPECT_EQ(refusal_of({"--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "x"}), "") << endpoint;
}

TEST(RankPlan, RanksAreConsecutiveAndRolesCountedByName) {
  const RunOptions options =
      parse({"--role", "a", "x", ":", "-n", "2", "--role", "b", "y", ":", "-n1", "--role=a", "z"});
  const auto ranks = plan(options);
  ASSERT_EQ(ranks.size(), 4u);
  const auto row = [&](int rank) {
    const PlannedRank& it = ranks[static_cast<std::size_t>(rank)];
    return std::vector{it.rank, it.role_rank, it.role_size};
  };
  EXPECT_EQ(row(0), (std::vector{0, 0, 2}));
  EXPECT_EQ(row(1), (std::vector{1, 0, 2}));
  EXPECT_EQ(row(2), (std::vector{2, 1, 2}));
  EXPECT_EQ(row(3), (std::vector{3, 1, 2}));
}

TEST(RankPlan, RefusesRanksThatTheJobDoesNotHave) {
  for (const Words& words : std::vector<Words>{{"-n2", "--wrap", "gdb", "--wrap-ranks", "2", "x"},
                                               {"-n2", "--local-ranks-filter", "0,2", "x"},
                                               {"-n2", "--tee", "2:1", "x"},
                                               {"-n2", "--redirects", "0:1,5:1", "x"},
                                               {"-n2", "--stdin", "2", "x"},
                                               {"-n2", "--stdin", "first", "x"},
                                               {"-n2", "--virtual-local-rank", "x"}})
    EXPECT_THROW(plan(parse(words)), UsageError) << words[1];
}

Words command(const Words& words, std::size_t rank = 0) {
  const RunOptions options = parse(words);
  return rank_command(options, plan(options).at(rank));
}

TEST(RankPlan, RunsScriptsByPythonAndAllElseAsItIs) {
  unsetenv("PYTHON_EXEC");
  EXPECT_EQ(command({"a.py", "b"}), (Words{"python3", "-u", "a.py", "b"}));
  EXPECT_EQ(command({"--no-python", "a.py"}), (Words{"a.py"}));
  EXPECT_EQ(command({"-m", "package.a", "b"}), (Words{"python3", "-u", "-m", "package.a", "b"}));
  EXPECT_EQ(command({"./a", "b.py"}), (Words{"./a", "b.py"}));
  const Variable python("PYTHON_EXEC", "/opt/python");
  EXPECT_EQ(command({"a.py"}), (Words{"/opt/python", "-u", "a.py"}));
}

TEST(RankPlan, WrapsTheNamedRanksAndFillsInMacros) {
  const Words words = {"-n2", "--wrap", "gdb -ex 'run now' --args", "--wrap-ranks=1", "p", "${local_rank}-${rank}",
                       "$x"};
  EXPECT_EQ(command(words, 0), (Words{"p", "0-0", "$x"}));
  EXPECT_EQ(command(words, 1), (Words{"gdb", "-ex", "run now", "--args", "p", "1-1", "$x"}));
}

TEST(RankPlan, VirtualLocalRanksHaveOneGpuEach) {
  const RunOptions options = parse({"-n2", "--virtual-local-rank", "p", "${local_rank}"});
  const Devices devices{kCpus, {"4", "7"}};
  const auto ranks = plan_ranks(options, devices);
  const auto environment = rank_environment(options, ranks[1], {0, "1"}, devices);
  EXPECT_EQ(environment.at("LOCAL_RANK"), "0");
  EXPECT_EQ(environment.at("CUDA_VISIBLE_DEVICES"), "7");
  EXPECT_EQ(rank_command(options, ranks[1]).back(), "0");
}

TEST(RunFlags, ReadsFiltersOfCopies) {
  const RunOptions options = parse({"--duplicate-stdout-filters", "loss,a,,b", "--duplicate_stderr_filters=warn", "p"});
  EXPECT_EQ(options.duplicate_stdout_filters, (Words{"loss", "a,b"}));
  EXPECT_EQ(options.duplicate_stderr_filters, (Words{"warn"}));
}

TEST(RunFlags, BindsRanksAsNumaBindingSays) {
  using Kind = retinue::CpuAffinity::Kind;
  EXPECT_EQ(parse({"p"}).cpu_affinity.kind(), Kind::kNone);
  EXPECT_EQ(parse({"--numa-binding", "node", "p"}).cpu_affinity.kind(), Kind::kNode);
  EXPECT_EQ(parse({"--numa_binding=socket", "p"}).cpu_affinity.kind(), Kind::kSocket);
  EXPECT_EQ(parse({"--numa-binding", "exclusive", "p"}).cpu_affinity.kind(), Kind::kExclusive);
  EXPECT_EQ(parse({"--numa-binding", "core-complex", "p"}).cpu_affinity.kind(), Kind::kCoreComplex);
}

TEST(Devices, CountsRanks) {
  EXPECT_EQ(rank_count_of("auto", 8, {}), 8);
  EXPECT_EQ(rank_count_of("auto", 8, {"0", "1"}), 2);
  EXPECT_EQ(rank_count_of("cpu", 8, {"0", "1"}), 8);
  EXPECT_EQ(rank_count_of("gpu", 8, {"0", "1"}), 2);
  EXPECT_EQ(rank_count_of("5", 8, {}), 5);
  for (const char* wrong : {"gpu", "xpu", "0", "-1", "2.5", "", "99999999999"})
    EXPECT_THROW(rank_count_of(wrong, 8, {}), UsageError) << wrong;
}

TEST(Devices, CudaVisibleDevicesHidesGpus) {
  const Variable variable("CUDA_VISIBLE_DEVICES", "3,GPU-abc,-1,0");
  EXPECT_EQ(visible_gpus(), (Words{"3", "GPU-abc"}));
}

TEST(Texts, SplitAndQuote) {
  EXPECT_EQ(split_at_commas("a,,b,c,"), (Words{"a,b", "c"}));
  EXPECT_EQ(shell_words(R"(a  'b c' "d\"e" f\ g '')"), (Words{"a", "b c", "d\"e", "f g", ""}));
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_quoted("a/b-c.d"), "a/b-c.d");
  EXPECT_EQ(shell_quoted(""), "''");
}

}  // namespace
