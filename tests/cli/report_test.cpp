// The page that a run leaves: `retinue run --report`, RETINUE_REPORT, RuntimeOptions::report.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/shell_run.h"
#include "support/paths.h"
#include "support/says.h"

using nlohmann::json;
using retinue::test::contains;
using retinue::test::count_of;
using retinue::test::shell_run;

namespace {

constexpr const char* kBrowsers[] = {"chromium", "chromium-browser", "google-chrome"};

class Report : public testing::Test {
 protected:
  Report() {
    std::string folder = testing::TempDir() + "report_XXXXXX";
    folder_ = mkdtemp(folder.data());
    setenv("REPORT", file().c_str(), 1);
    setenv("PROGRAM", RETINUE_BIN_DIR "/report_program", 1);
  }
  ~Report() override { std::filesystem::remove_all(folder_); }

  std::string file() const { return folder_ / "report.html"; }
  std::string page() const {
    std::ifstream stream(file());
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }
  json data() const {
    const std::string text = page();
    const std::string mark = "id=\"data\">";
    const auto begin = text.find(mark) + mark.size();
    return json::parse(text.substr(begin, text.find("</script>", begin) - begin));
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  static json context_named(const json& data, const std::string& name) {
    for (const json& context : data["contexts"])
      if (context["name"] == name) return context;
    return {};
  }

  std::filesystem::path folder_;
};

TEST_F(Report, HasTheCallsOfAllRanks) {
  const auto run = shell_run("$RETINUE run --report $REPORT $PROGRAM well");
  ASSERT_EQ(run.status, 0) << run.output;
  const json context = context_named(data(), "well");
  EXPECT_TRUE(context["failure"].is_null());
  ASSERT_EQ(context["ranks"].size(), 2u);
  for (const json& rank : context["ranks"]) {
    EXPECT_EQ(rank["calls_made"], 23);
    ASSERT_EQ(rank["calls"].size(), 23u);
    const json& first = rank["calls"][0];
    EXPECT_EQ(context["kinds"][first[0].get<std::size_t>()], "all_reduce");
    EXPECT_EQ(context["groups"][first[1].get<std::size_t>()]["size"], 2);
    EXPECT_EQ(first[2], 1);
    EXPECT_GT(first[3], 0);
    EXPECT_GT(first[4], 0);
    EXPECT_EQ(first[5], 4000);
    EXPECT_TRUE(contains(context["sites"][first[6].get<std::size_t>()], "report_program.cpp:")) << context["sites"];
    EXPECT_EQ(first[7], 0);
  }
  EXPECT_EQ(files(), 1u);
}

TEST_F(Report, TellsGroupsOfOneNameApart) {
  ASSERT_EQ(shell_run("RETINUE_REPORT=$REPORT $PROGRAM twice").status, 0);
  const json context = context_named(data(), "twice");
  for (std::size_t i = 0; i < 2; ++i) {
    const json& one = context["ranks"][0]["calls"].at(i);
    const json& other = context["ranks"][1]["calls"].at(i);
    EXPECT_EQ(one[2], 1) << "the first call of each group";
    EXPECT_EQ(one[10], one[3] > other[3] ? 0 : 1) << "who began it last";
    EXPECT_EQ(other[10], one[10]);
    EXPECT_EQ(one[9].get<long>() > 0 && other[9].get<long>() > 0, false) << "one of them waited for nobody";
  }
}

TEST_F(Report, HasAllContextsOfAJobAlsoThoseThatFailed) {
  const auto run = shell_run("RETINUE_REPORT=$REPORT $PROGRAM well die throw well2");
  EXPECT_EQ(WEXITSTATUS(run.status), 2) << run.output;
  const json all = data();
  EXPECT_EQ(all["contexts"].size(), 4u);
  EXPECT_TRUE(context_named(all, "well2")["failure"].is_null());
  const json died = context_named(all, "die");
  EXPECT_TRUE(contains(died["failure"], "rank 1")) << died["failure"];
  EXPECT_TRUE(contains(died["failure"], "SIGKILL")) << died["failure"];
  // Behind it stands the barrier by which they knew of each other that they are in it.
  const auto newest_but_one = [&](int rank) { return *(died["ranks"][rank]["calls"].end() - 2); };
  EXPECT_EQ(newest_but_one(1)[7], 1) << "the dead rank's call was under way";
  EXPECT_NE(newest_but_one(0)[7], 0) << "the other's failed, or was still waiting when it was stopped";
  EXPECT_TRUE(contains(context_named(all, "throw")["failure"], "bad </script> of <b>rank 1</b>"));
  for (const char* name : {"die", "throw"}) {
    const json ranks = context_named(all, name)["ranks"];
    EXPECT_EQ(ranks[1]["failure"], "own") << name;
    EXPECT_NE(ranks[0]["failure"], "own") << name << ": rank 0 only noticed it";
    EXPECT_GE(ranks[1]["failed_at"], ranks[1]["begun"]) << name;
    EXPECT_LE(ranks[1]["failed_at"], ranks[1]["ended"]) << name;
  }
  EXPECT_EQ(context_named(all, "well2")["ranks"][0]["failure"], "none");
  EXPECT_EQ(files(), 1u);
}

TEST_F(Report, TellsForWhichRankACallWaitedThatNeverCame) {
  shell_run("RETINUE_REPORT=$REPORT $PROGRAM late");
  const json context = context_named(data(), "late");
  const json& last = context["ranks"][0]["calls"].back();
  EXPECT_NE(last[7], 0) << "it ended well: " << last;
  EXPECT_GT(last[9], 100'000'000) << "nanoseconds that it waited";
  EXPECT_EQ(last[9], last[4]) << "all its time";
  EXPECT_EQ(last[10], 2) << "the rank that failed, not the one that was stopped";
}

TEST_F(Report, ReplacesThatOfAnEarlierJob) {
  ASSERT_EQ(shell_run("RETINUE_REPORT=$REPORT $PROGRAM well").status, 0);
  const json first = data();
  ASSERT_EQ(shell_run("RETINUE_REPORT=$REPORT $PROGRAM well2").status, 0);
  EXPECT_EQ(data()["contexts"].size(), 1u);
  EXPECT_NE(data()["job"]["id"], first["job"]["id"]);
  std::ofstream(file()) << "some other file";
  ASSERT_EQ(shell_run("RETINUE_REPORT=$REPORT $PROGRAM well").status, 0);
  EXPECT_EQ(data()["contexts"].size(), 1u);
}

TEST_F(Report, IsRefusedWhereNoFileCanBeMade) {
  for (const char* report : {"/no/such/folder/report.html", "/proc/report.html", "/tmp"}) {
    const auto run = shell_run(std::string("$RETINUE run --report ") + report + " echo started");
    EXPECT_NE(run.status, 0);
    EXPECT_TRUE(contains(run.output, report)) << run.output;
    EXPECT_FALSE(contains(run.output, "started\n")) << run.output;
  }
}

TEST_F(Report, IsOfNoProgramThatARankStarts) {
  const auto run = shell_run("$RETINUE run --report $REPORT sh -c 'test -z \"$RETINUE_REPORT\" && echo unset'");
  EXPECT_TRUE(contains(run.output, "unset\n")) << run.output;
  EXPECT_TRUE(
      contains(shell_run("RETINUE_REPORT=$REPORT $RETINUE run sh -c 'echo \"<$RETINUE_REPORT>\"'").output, "<>"));
}

TEST_F(Report, HasTheCurvesOfScalarsAndTheTimesOfSteps) {
  const auto run = shell_run("cd " + folder_.string() + " && RETINUE_REPORT=$REPORT $PROGRAM train idle");
  ASSERT_EQ(run.status, 0) << run.output;
  const json context = context_named(data(), "train");
  const json& scalars = context["scalars"];
  ASSERT_EQ(scalars.size(), 3u) << scalars;
  EXPECT_EQ(scalars[0]["tag"], "loss/<b>train</b>");
  const std::size_t points = scalars[0]["steps"].size();
  EXPECT_EQ(points, 1000u);
  EXPECT_EQ(scalars[0]["values"].size(), points);
  EXPECT_EQ(scalars[0]["steps"][0], 0);
  EXPECT_EQ(scalars[0]["values"][0], 1.0);
  EXPECT_EQ(scalars[0]["steps"][points - 1], 2999);
  EXPECT_EQ(scalars[1]["tag"], "odd");
  EXPECT_EQ(scalars[1]["steps"].size(), 30u);
  EXPECT_TRUE(scalars[1]["values"][5].is_null()) << "NaN";
  EXPECT_EQ(scalars[2], (json{{"tag", "one"}, {"steps", {7}}, {"values", {5.0}}}));
  for (const json& rank : context["ranks"]) {
    const json& steps = rank["steps"];
    EXPECT_EQ(steps["count"], 3000);
    EXPECT_EQ(steps["data"].get<long>() + steps["compute"].get<long>() + steps["waiting"].get<long>() +
                  steps["communication"].get<long>(),
              steps["total"]);
  }
  EXPECT_GT(context["ranks"][0]["steps"]["waiting"], 40'000'000) << "nanoseconds that it waited for rank 1";
  EXPECT_GT(context["ranks"][1]["steps"]["compute"], 60'000'000);
  EXPECT_TRUE(context_named(data(), "idle")["scalars"].empty());
  EXPECT_TRUE(context_named(data(), "idle")["ranks"][0]["steps"].is_null());
}

TEST_F(Report, IsShownByABrowserWithoutAnyError) {
  std::string browser;
  for (const char* name : kBrowsers)
    if (browser.empty() && shell_run(std::string("command -v ") + name).status == 0) browser = name;
  if (browser.empty()) GTEST_SKIP() << "there is no Chromium: install the package chromium";
  const auto run =
      shell_run("cd " + folder_.string() + " && RETINUE_REPORT=$REPORT $PROGRAM well die throw idle train");
  ASSERT_EQ(WEXITSTATUS(run.status), 2) << run.output;
  setenv("BROWSER", browser.c_str(), 1);
  const auto shown = shell_run("HOME=" + folder_.string() +
                               " timeout 100 $BROWSER --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
                               "--enable-logging=stderr --virtual-time-budget=5000 --dump-dom file://$REPORT");
  EXPECT_EQ(shown.status, 0) << shown.output;
  EXPECT_FALSE(contains(shown.output, "CONSOLE")) << shown.output.substr(shown.output.find("CONSOLE") - 100, 1000);
  EXPECT_TRUE(contains(shown.output, "data-ready=\"5\"")) << "the page's script did not come to its end";
  for (const char* text : {"succeeded", "die: failed", "bad &lt;/script&gt; of &lt;b&gt;rank 1&lt;/b&gt;", "all_reduce",
                           "1.00 KiB to 4.00 KiB", "report_program.cpp:", "the others waited longest for it: ",
                           "loss/&lt;b&gt;train&lt;/b&gt;: 3.33e-4"})
    EXPECT_TRUE(contains(shown.output, text)) << text;
  // Of ranks that recorded no calls, it is not known how long they were in some.
  EXPECT_EQ(count_of(shown.output, "<th scope=\"col\">peak memory</th>"), 5);
  EXPECT_EQ(count_of(shown.output, "<th scope=\"col\">in calls</th>"), 4);
  EXPECT_EQ(count_of(shown.output, "<figure>"), 3);
  EXPECT_EQ(count_of(shown.output, "<polyline"), 3) << "one of the curves has a gap, and one is a point";
  EXPECT_EQ(count_of(shown.output, "<circle"), 1);
  EXPECT_EQ(count_of(shown.output, "<th scope=\"col\">waiting for ranks</th>"), 1);
}

}  // namespace
