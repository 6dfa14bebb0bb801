// Arguments and environments per local rank, of functions and programs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "retinue/launch/spawn.h"
#include "support/start_methods.h"
#include "support/usage_error.h"

using retinue::Arguments;
using retinue::RankContext;
using retinue::test::EachStartMethod;
using retinue::test::usage_error_of;

namespace {

std::string describe(RankContext& context, const std::string& text, int number) {
  const char* own = std::getenv("RETINUE_TEST_OWN");
  const char* option = std::getenv("RETINUE_TEST_OPTION");
  return fmt::format("{} {} {} {} {}", context.rank(), text, number, own != nullptr ? own : "none",
                     option != nullptr ? option : "none");
}

TEST_P(EachStartMethod, GivesEachLocalRankItsArgumentsAndVariables) {
  auto ranks = retinue::start_processes<describe>(
      {.start_method = GetParam(),
       .environment = {{1, {{"RETINUE_TEST_OWN", "the option's"}, {"RETINUE_TEST_OPTION", "kept"}}}}},
      {{0, {"first", 10}}, {1, {"second", 20}}}, {{0, {{"RETINUE_TEST_OWN", "a"}}}, {1, {{"RETINUE_TEST_OWN", "b"}}}});
  const auto values = ranks.wait().values<std::string>();
  EXPECT_EQ(values.at(0), "0 first 10 a none");
  EXPECT_EQ(values.at(1), "1 second 20 b kept");
  auto others = retinue::start_processes<describe>({.start_method = GetParam()}, {{0, {"only", 1}}});
  EXPECT_EQ(others.wait().value<std::string>(0), "0 only 1 none none");
}

INSTANTIATE_TEST_SUITE_P(StartMethods, EachStartMethod, retinue::test::all_start_methods(),
                         retinue::test::start_method_name);

TEST(StartProcesses, ShowsExpectedAndActualLocalRanks) {
  const auto says = [](const std::string& error, const std::string& text) {
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  says(usage_error_of([] {
         retinue::start_processes<describe>({}, {{0, {"", 1}}, {2, {"", 1}}});
       }),
       "args must have an entry for each of the 2 local ranks and no other: expected {0, 1}, actual {0, 2}");
  says(usage_error_of([] {
         retinue::start_processes<describe>({}, {{0, {"", 1}}, {1, {"", 1}}}, {{0, {}}});
       }),
       "envs must have an entry for each of the 2 local ranks and no other: expected {0, 1}, actual {0}");
  says(usage_error_of([] {
         retinue::start_processes<describe>({}, {{0, {"", 1}}}, {{0, {}}, {1, {}}});
       }),
       "expected {0}, actual {0, 1}");
  says(usage_error_of([] { retinue::start_processes<describe>({}, std::map<int, std::tuple<std::string, int>>()); }),
       "args is empty");
  says(usage_error_of([] { retinue::start_processes({}, "true", {{1, {}}}); }), "expected {0}, actual {1}");
  says(usage_error_of([] {
         retinue::start_processes({}, "true", {{0, {}}, {1, {}}}, {{1, {}}});
       }),
       "envs must have an entry for each of the 2 local ranks and no other: expected {0, 1}, actual {1}");
  std::map<int, Arguments> many;
  for (int rank = 1; rank <= 100; ++rank) many[rank] = Arguments("x");
  says(usage_error_of([&] { retinue::start_processes({}, "true", many); }), "15, ... 99}, actual {1, 2, ");
}

TEST(StartProcesses, ProgramsGetTheirOwnArgumentsAndVariables) {
  const std::string script = "test \"$1 $2\" = \"$WANTED\"";
  EXPECT_NO_THROW(retinue::start_processes({}, "sh",
                                           {{0, {"-c", script, "sh", 1, 2.5}}, {1, {"-c", script, "sh", "a b", ""}}},
                                           {{0, {{"WANTED", "1 2.5"}}}, {1, {{"WANTED", "a b "}}}})
                      .join());
  EXPECT_THROW(retinue::start_processes({}, "sh", {{0, {"-c", script, "sh", 1, 2}}}, {{0, {{"WANTED", "1 3"}}}}).join(),
               retinue::ProcessExitedException);
}

}  // namespace
