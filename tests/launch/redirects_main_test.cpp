// Redirected output and the rules for log_dir.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>

#include "launch/log_files.h"
#include "retinue/launch/spawn.h"
#include "support/start_methods.h"

using retinue::Program;
using retinue::RankContext;
using retinue::RankOutcome;
using retinue::StartOptions;
using retinue::Std;
using retinue::StdByRank;
using retinue::test::CapturedStream;
using retinue::test::contents_of;
using retinue::test::EachStartMethod;
using retinue::test::Folder;

namespace {

void print_both(RankContext& context) {
  std::printf("out %d\n", context.rank());
  std::cout << "more\n";
  std::fprintf(stderr, "err %d\n", context.rank());
}

void crash_after_a_line(RankContext& context) {
  std::printf("last words of %d\nand half a li", context.rank());
  std::fflush(stdout);
  raise(SIGKILL);
}

TEST_P(EachStartMethod, RedirectsGoToFilesAndOthersToTheConsole) {
  const Folder logs;
  const CapturedStream console(STDOUT_FILENO);
  auto ranks = retinue::start_processes<print_both>({.start_method = GetParam(),
                                                     .log_dir = logs.path(),
                                                     .redirects = std::map<int, Std>{{0, Std::kAll}, {1, Std::kErr}}},
                                                    {{0, {}}, {1, {}}});
  ranks.join();
  EXPECT_EQ(contents_of(logs.path() + "/0/stdout.log"), "out 0\nmore\n");
  EXPECT_EQ(contents_of(logs.path() + "/0/stderr.log"), "err 0\n");
  EXPECT_EQ(contents_of(logs.path() + "/1/stderr.log"), "err 1\n");
  EXPECT_FALSE(std::filesystem::exists(logs.path() + "/1/stdout.log"));
  EXPECT_EQ(console.text(), "out 1\nmore\n");
  const std::vector<RankOutcome> outcomes = ranks.status();
  EXPECT_EQ(outcomes[0].stdout_log, logs.path() + "/0/stdout.log");
  EXPECT_EQ(outcomes[1].stdout_log, "");
  EXPECT_EQ(outcomes[1].stderr_log, logs.path() + "/1/stderr.log");
}

TEST_P(EachStartMethod, WhatWasWrittenBeforeAKillIsThere) {
  const Folder logs;
  auto ranks = retinue::start_processes<crash_after_a_line>(
      {.start_method = GetParam(), .log_dir = logs.path(), .redirects = Std::kOut}, {{0, {}}});
  EXPECT_THROW(ranks.join(), retinue::ProcessExitedException);
  EXPECT_EQ(contents_of(logs.path() + "/0/stdout.log"), "last words of 0\nand half a li");
}

void expect_error_file(RankContext& context, const std::string& folder) {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  const std::string expected = folder + "/" + std::to_string(context.local_rank()) + "/error.json";
  if (path == nullptr || path != expected) throw std::logic_error(path == nullptr ? "none" : path);
  if (!std::filesystem::is_directory(std::filesystem::path(path).parent_path())) throw std::logic_error("no folder");
}

TEST_P(EachStartMethod, EachRankIsToldItsErrorFile) {
  const Folder logs;
  retinue::start_processes<expect_error_file>({.start_method = GetParam(), .log_dir = logs.path()},
                                              {{0, {logs.path()}}, {1, {logs.path()}}})
      .join();
}

TEST(Redirects, OfProgramsWithRanksOfTwoDigits) {
  const Folder logs;
  std::vector<Program> programs(12, Program{"sh", {"-c", "echo out $RANK; echo err $RANK >&2"}, {}});
  const CapturedStream out(STDOUT_FILENO);
  const CapturedStream err(STDERR_FILENO);
  auto ranks = retinue::start_processes(
      {.log_dir = logs.path(), .redirects = StdByRank::parse("0:1,11:3"), .console_ranks = {0, 11}}, programs);
  ranks.join();
  EXPECT_EQ(contents_of(logs.path() + "/0/stdout.log"), "out 0\n");
  EXPECT_EQ(contents_of(logs.path() + "/11/stdout.log"), "out 11\n");
  EXPECT_EQ(contents_of(logs.path() + "/11/stderr.log"), "err 11\n");
  EXPECT_EQ(out.text(), "");  // Ranks 1 to 10 are not among the console's.
  EXPECT_EQ(err.text(), "err 0\n");
}

TEST(Redirects, ConsoleRanksNeedNoDirectory) {
  const CapturedStream out(STDOUT_FILENO);
  retinue::start_processes({.console_ranks = {1}}, std::vector<Program>(3, Program{"sh", {"-c", "echo $RANK"}, {}}))
      .join();
  EXPECT_EQ(out.text(), "1\n");
}

std::string refusal_of(const StartOptions& options) {
  try {
    retinue::start_processes<print_both>(options, {{0, {}}, {1, {}}}).join();
  } catch (const retinue::UsageError& error) {
    return error.what();
  }
  return "not refused";
}

void expect_refusal(const StartOptions& options, const std::string& part) {
  const std::string text = refusal_of(options);
  EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' instead of '" << part << "'";
}

TEST(LogDir, IsRefusedInEachWayInWhichItIsNoEmptyDirectory) {
  const Folder folder;
  expect_refusal({.log_dir = folder.path() + "/none"}, "/none' does not exist");
  std::ofstream(folder.path() + "/file") << "x";
  expect_refusal({.log_dir = folder.path() + "/file"}, "/file' is not a directory");
  expect_refusal({.log_dir = folder.path() + "/file/below"}, "cannot be used: Not a directory");
  expect_refusal({.log_dir = folder.path()}, "is not empty, it contains 'file'");
  expect_refusal({.log_dir = std::string(5000, 'x')}, "cannot be used: File name too long");
  expect_refusal({.log_dir = "/proc/self/fdinfo/.."}, "is not empty");
}

TEST(LogDir, IsRefusedWhenItIsNotWritable) {
  const Folder folder;
  const uid_t user = geteuid();
  ASSERT_EQ(chmod(folder.path().c_str(), 0555), 0);
  constexpr uid_t kNobody = 65534;
  if (user == 0) {
    ASSERT_EQ(seteuid(kNobody), 0);
  }
  const std::string text = refusal_of({.log_dir = folder.path()});
  ASSERT_EQ(seteuid(user), 0);
  EXPECT_NE(text.find("cannot be written to: Permission denied"), std::string::npos) << text;
}

TEST(LogDir, StaysEmptyWhenTheStartIsRefused) {
  const Folder logs;
  expect_refusal({.log_dir = logs.path(), .redirects = Std::kAll, .line_prefix = "${nonsense}"},
                 "${nonsense} is unknown");
  EXPECT_TRUE(std::filesystem::is_empty(logs.path()));
  EXPECT_THROW(retinue::start_processes<print_both>({.start_method = retinue::StartMethod::kForkserver,
                                                     .log_dir = logs.path(),
                                                     .redirects = std::map<int, Std>{{3, Std::kOut}}},
                                                    {{0, {}}}),
               retinue::UsageError);
  EXPECT_TRUE(std::filesystem::is_empty(logs.path()));
}

TEST(LogOptions, RefuseRanksThatThereAreNot) {
  expect_refusal({.redirects = std::map<int, Std>{{2, Std::kOut}}}, "redirects names rank 2, but the local ranks");
  expect_refusal({.redirects = std::map<int, Std>{{-1, Std::kOut}}}, "redirects names rank -1");
  expect_refusal({.tee = StdByRank::parse("0:1,12:3")}, "tee names rank 12");
  expect_refusal({.console_ranks = {0, 7}}, "console_ranks names rank 7");
}

TEST(LogOptions, RefuseAWrongPrefixAndFilter) {
  expect_refusal({.line_prefix = "[${name}]"},
                 "${name} is unknown; it can contain ${role_name}, ${local_rank} and ${rank}");
  expect_refusal({.line_prefix = "[${rank"}, "a ${ is not closed by }");
  expect_refusal({.name = "two\nlines"}, "it must be one line");
  expect_refusal({.console_filters = {"a\nb"}}, "no line can contain it");
  expect_refusal({.tee = Std::kOut, .duplicate_stdout_filters = {"a\nb"}}, "duplicate_stdout_filters: 'a\nb'");
  expect_refusal({.tee = Std::kOut, .duplicate_stderr_filters = {"a"}}, "no rank's standard error is tee'd");
  expect_refusal({.tee = Std::kOut, .duplicate_stdout_filters = {"a"}}, "into log_dir, but log_dir is not set");
}

INSTANTIATE_TEST_SUITE_P(StartMethods, EachStartMethod, retinue::test::all_start_methods(),
                         retinue::test::start_method_name);

}  // namespace
