// Output that is shown line by line while it goes to files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "launch/log_files.h"
#include "retinue/launch/spawn.h"
#include "support/start_methods.h"

using retinue::Program;
using retinue::RankContext;
using retinue::Std;
using retinue::StdByRank;
using retinue::test::CapturedStream;
using retinue::test::contents_of;
using retinue::test::EachStartMethod;
using retinue::test::Folder;
using retinue::test::PipedStream;
using retinue::test::ReplacedStream;
using retinue::test::wait_until;

namespace {

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

using Lines = std::vector<std::string>;

void print_both(RankContext& context) {
  std::printf("out %d\n", context.rank());
  std::fprintf(stderr, "err %d\n", context.rank());
}

TEST_P(EachStartMethod, LinesGoToTheFileAndWithAPrefixToTheConsole) {
  const Folder logs;
  const CapturedStream out(STDOUT_FILENO);
  const CapturedStream err(STDERR_FILENO);
  retinue::start_processes<print_both>(
      {.name = "trainer", .start_method = GetParam(), .log_dir = logs.path(), .tee = Std::kAll}, {{0, {}}, {1, {}}})
      .join();
  EXPECT_EQ(sorted_lines(out.text()), (Lines{"[trainer0]:out 0", "[trainer1]:out 1"}));
  EXPECT_EQ(sorted_lines(err.text()), (Lines{"[trainer0]:err 0", "[trainer1]:err 1"}));
  EXPECT_EQ(contents_of(logs.path() + "/1/stdout.log"), "out 1\n");
  EXPECT_EQ(contents_of(logs.path() + "/1/stderr.log"), "err 1\n");
}

void die_in_mid_line(RankContext&) {
  std::printf("whole\nand half a li");
  std::fflush(stdout);
  raise(SIGKILL);
}

TEST_P(EachStartMethod, ARankKilledInMidLineShowsItOnceAndMarked) {
  const Folder logs;
  const CapturedStream out(STDOUT_FILENO);
  auto ranks = retinue::start_processes<die_in_mid_line>(
      {.start_method = GetParam(), .log_dir = logs.path(), .tee = Std::kOut}, {{0, {}}});
  EXPECT_THROW(ranks.join(), retinue::ProcessExitedException);
  EXPECT_EQ(out.text(), "[rank0]:whole\n[rank0]:and half a li [no newline]\n");
  EXPECT_EQ(contents_of(logs.path() + "/0/stdout.log"), "whole\nand half a li");
}

INSTANTIATE_TEST_SUITE_P(StartMethods, EachStartMethod, retinue::test::all_start_methods(),
                         retinue::test::start_method_name);

Program shell(const std::string& script) {
  return {"sh", {"-c", script}, {}};
}

TEST(Tee, OfProgramsWithRanksOfTwoDigits) {
  const Folder logs;
  const CapturedStream out(STDOUT_FILENO);
  const CapturedStream err(STDERR_FILENO);
  const std::vector<Program> programs(12, shell("echo out $RANK; echo err $RANK >&2"));
  retinue::start_processes({.log_dir = logs.path(),
                            .tee = StdByRank::parse("0:1,11:3"),
                            .line_prefix = "${role_name} ${local_rank}/${rank}> ",
                            .console_ranks = {0, 11}},
                           programs)
      .join();
  EXPECT_EQ(sorted_lines(out.text()), (Lines{"rank 0/0> out 0", "rank 11/11> out 11"}));
  EXPECT_EQ(sorted_lines(err.text()), (Lines{"err 0", "rank 11/11> err 11"}));
}

TEST(Tee, FiltersChooseLinesAndConsoleRanksChooseRanks) {
  const Folder logs;
  const CapturedStream out(STDOUT_FILENO);
  retinue::start_processes(
      {.log_dir = logs.path(), .tee = Std::kOut, .console_ranks = {1}, .console_filters = {"loss", "error"}},
      {shell("echo loss 0"), shell("echo loss 1; echo nothing; echo error 1")})
      .join();
  EXPECT_EQ(out.text(), "[rank1]:loss 1\n[rank1]:error 1\n");
  EXPECT_EQ(contents_of(logs.path() + "/0/stdout.log"), "loss 0\n");
  EXPECT_EQ(contents_of(logs.path() + "/1/stdout.log"), "loss 1\nnothing\nerror 1\n");
}

TEST(Tee, CopiesOfWantedLinesGoToOneFileForAllRanks) {
  const Folder logs;
  const CapturedStream out(STDOUT_FILENO);
  const CapturedStream err(STDERR_FILENO);
  const std::string script = "echo loss $RANK; echo nothing; echo warn $RANK >&2; echo error $RANK >&2";
  retinue::start_processes({.name = "trainer",
                            .log_dir = logs.path(),
                            .tee = Std::kAll,
                            .console_ranks = {0, 1},
                            .console_filters = {"nothing", "error"},
                            .duplicate_stdout_filters = {"loss", "gain"},
                            .duplicate_stderr_filters = {"warn"}},
                           {shell(script), shell(script), shell(script)})
      .join();
  EXPECT_EQ(sorted_lines(contents_of(logs.path() + "/filtered_stdout.log")),
            (Lines{"[trainer0]:loss 0", "[trainer1]:loss 1"}));
  EXPECT_EQ(sorted_lines(contents_of(logs.path() + "/filtered_stderr.log")),
            (Lines{"[trainer0]:warn 0", "[trainer1]:warn 1"}));
  EXPECT_EQ(sorted_lines(out.text()), (Lines{"[trainer0]:nothing", "[trainer1]:nothing"}));
  EXPECT_EQ(sorted_lines(err.text()), (Lines{"[trainer0]:error 0", "[trainer1]:error 1"}));
}

TEST(Tee, CopiesComeWhileTheRanksRun) {
  const Folder logs;
  const CapturedStream out(STDOUT_FILENO);
  const Folder folder;
  const std::string go = folder.path() + "/go";
  auto ranks = retinue::start_processes(
      {.log_dir = logs.path(), .tee = Std::kOut, .duplicate_stdout_filters = {"loss"}},
      {shell("echo loss 1; until test -e " + go + "; do sleep 0.01; done; echo loss 2; sleep 30")});
  const std::string copies = logs.path() + "/filtered_stdout.log";
  EXPECT_TRUE(wait_until([&] { return contents_of(copies) == "[rank0]:loss 1\n"; })) << contents_of(copies);
  std::ofstream(go) << "x";
  EXPECT_TRUE(wait_until([&] { return contents_of(copies) == "[rank0]:loss 1\n[rank0]:loss 2\n"; }));
  EXPECT_TRUE(wait_until([&] { return out.text() == "[rank0]:loss 1\n[rank0]:loss 2\n"; })) << out.text();
  ranks.kill();
  ranks.join();
}

std::string odd_bytes() {
  return std::string("a\0b\xff\xfe\r\n", 7) + std::string(std::size_t{1} << 20, 'x') + "\n\0";
}

void print_odd_bytes(RankContext&) {
  const std::string text = odd_bytes();
  std::fwrite(text.data(), 1, text.size(), stdout);
}

TEST(Tee, LongLinesAndOddBytesPassUntouched) {
  const Folder logs;
  PipedStream out(STDOUT_FILENO);
  auto ranks = retinue::start_processes<print_odd_bytes>({.log_dir = logs.path(), .tee = Std::kOut}, {{0, {}}});
  const std::string shown = out.read_all();
  ranks.join();
  const std::string odd = odd_bytes();
  EXPECT_TRUE(contents_of(logs.path() + "/0/stdout.log") == odd);
  EXPECT_TRUE(shown == "[rank0]:" + odd.substr(0, 7) + "[rank0]:" + odd.substr(7)) << shown.size();
}

constexpr int kManyLines = 20'000;

void print_many_lines(RankContext& context) {
  for (int i = 0; i < kManyLines; ++i) std::printf("rank %d line %d\n", context.rank(), i);
}

/// What `ranks` ranks of print_many_lines show, in the order of each rank.
void expect_many_lines(const std::string& shown, int ranks) {
  std::map<int, int> next;
  std::istringstream stream(shown);
  for (std::string line; std::getline(stream, line);) {
    int prefix = -1;
    int rank = -1;
    int number = -1;
    ASSERT_EQ(std::sscanf(line.c_str(), "[rank%d]:rank %d line %d", &prefix, &rank, &number), 3) << line;
    ASSERT_EQ(prefix, rank);
    ASSERT_EQ(number, next[rank]++) << "of rank " << rank;
  }
  ASSERT_EQ(next.size(), static_cast<std::size_t>(ranks));
  for (const auto& [rank, count] : next) EXPECT_EQ(count, kManyLines) << rank;
}

TEST(Tee, ManyRanksLoseAndMixNothing) {
  const Folder logs;
  PipedStream out(STDOUT_FILENO);
  auto ranks = retinue::start_processes<print_many_lines>({.log_dir = logs.path(), .tee = Std::kOut},
                                                          {{0, {}}, {1, {}}, {2, {}}, {3, {}}});
  const std::string shown = out.read_all();
  ranks.join();
  expect_many_lines(shown, 4);
}

TEST(Tee, AConsoleThatIsNotReadStopsNoRankAndLosesNothing) {
  const Folder logs;
  PipedStream out(STDOUT_FILENO);
  auto ranks =
      retinue::start_processes<print_many_lines>({.log_dir = logs.path(), .tee = Std::kOut}, {{0, {}}, {1, {}}});
  const std::string last = "line " + std::to_string(kManyLines - 1) + "\n";
  for (const std::string rank : {"0", "1"})
    EXPECT_TRUE(wait_until([&] { return contents_of(logs.path() + "/" + rank + "/stdout.log").ends_with(last); }));
  expect_many_lines(out.read_all(), 2);
  ranks.join();
}

TEST(Tee, AClosedConsoleStopsNoRank) {
  const Folder logs;
  PipedStream out(STDOUT_FILENO);
  const CapturedStream err(STDERR_FILENO);
  out.close_reader();
  retinue::start_processes<print_many_lines>({.log_dir = logs.path(), .tee = Std::kOut}, {{0, {}}, {1, {}}}).join();
  for (const std::string rank : {"0", "1"})
    EXPECT_EQ(sorted_lines(contents_of(logs.path() + "/" + rank + "/stdout.log")).size(),
              static_cast<std::size_t>(kManyLines));
  EXPECT_EQ(err.text(), "");
}

TEST(Tee, AConsoleThatNobodyReadsIsGivenUpAndThatIsSaid) {
  const Folder logs;
  const PipedStream out(STDOUT_FILENO);
  const CapturedStream err(STDERR_FILENO);
  retinue::start_processes<print_many_lines>({.name = "talker", .log_dir = logs.path(), .tee = Std::kOut}, {{0, {}}})
      .join();
  EXPECT_EQ(err.text(),
            "retinue: the console accepted no output for some seconds: the rest of the output of talker is in " +
                logs.path() + "\n");
  EXPECT_EQ(sorted_lines(contents_of(logs.path() + "/0/stdout.log")).size(), static_cast<std::size_t>(kManyLines));
}

void fail_at_will(RankContext&, int fail) {
  std::printf("a line\n");
  if (fail != 0) throw std::runtime_error("as asked");
}

/// What stands between "are in " and the next comma.
std::string named_directory(const std::string& text) {
  const auto first = text.find(" are in ");
  return first == std::string::npos ? "" : text.substr(first + 8, text.find(',', first) - first - 8);
}

class TemporaryLogs : public testing::TestWithParam<Std> {};

TEST_P(TemporaryLogs, AreNamedAndGoAfterSuccess) {
  const CapturedStream out(STDOUT_FILENO);
  const CapturedStream err(STDERR_FILENO);
  auto ranks =
      retinue::start_processes<fail_at_will>({.redirects = Std::kOut, .tee = GetParam()}, {{0, {0}}, {1, {0}}});
  ranks.join();
  const std::string directory = named_directory(err.text());
  EXPECT_NE(directory, "") << err.text();
  EXPECT_NE(access(directory.c_str(), F_OK), 0) << directory;
  EXPECT_EQ(ranks.status()[0].stdout_log, "");
}

TEST_P(TemporaryLogs, StayAfterAFailure) {
  const CapturedStream out(STDOUT_FILENO);
  const CapturedStream err(STDERR_FILENO);
  auto ranks =
      retinue::start_processes<fail_at_will>({.redirects = Std::kOut, .tee = GetParam()}, {{0, {0}}, {1, {1}}});
  EXPECT_THROW(ranks.join(), retinue::ProcessRaisedException);
  const std::string directory = named_directory(err.text());
  EXPECT_EQ(contents_of(directory + "/1/stdout.log"), "a line\n");
  EXPECT_EQ(ranks.status()[1].stdout_log, directory + "/1/stdout.log");
  std::filesystem::remove_all(directory);
}

INSTANTIATE_TEST_SUITE_P(Streams, TemporaryLogs, testing::Values(Std::kNone, Std::kAll),
                         [](const auto& info) { return info.param == Std::kNone ? "redirected" : "shown"; });

TEST(Tee, ColoursThePrefixOnATerminalOnly) {
  for (const bool wants_none : {false, true}) {
    const Folder logs;
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    ASSERT_EQ(grantpt(terminal), 0);
    ASSERT_EQ(unlockpt(terminal), 0);
    const int other_end = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
    setenv("TERM", "xterm", 1);
    if (wants_none) setenv("NO_COLOR", "1", 1);
    {
      const ReplacedStream out(STDOUT_FILENO, other_end);
      retinue::start_processes({.log_dir = logs.path(), .tee = Std::kOut}, {shell("echo hello")}).join();
    }
    unsetenv("NO_COLOR");
    char text[256];
    const ssize_t bytes = read(terminal, text, sizeof text);
    EXPECT_EQ(std::string(text, static_cast<std::size_t>(std::max<ssize_t>(bytes, 0))),
              wants_none ? "[rank0]:hello\r\n" : "\033[36m[rank0]:\033[0mhello\r\n");
    close(other_end);
    close(terminal);
  }
}

}  // namespace
