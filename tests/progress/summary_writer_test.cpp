// What a SummaryWriter writes, as a decoder in Python finds it that shares no code with it.
#include "retinue/progress/summary_writer.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <limits>

#include "progress/crc32c.h"
#include "progress/log_folder.h"
#include "support/fork_shared.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "support/wait_until.h"

namespace retinue {
namespace {

using nlohmann::json;
using test::events_in;
using test::ForkShared;
using test::json_lines;
using test::LogFolder;
using test::says;
using test::usage_error_of;

TEST(Crc32c, IsThatOfTheStandard) {
  const std::uint32_t crc = 0xE3069283;  // Of "123456789", by RFC 3720.
  EXPECT_EQ(masked_crc32c("123456789"), (crc >> 15 | crc << 17) + 0xa282ead8u);
}

TEST(SummaryWriter, WritesEventsAndJsonLines) {
  const LogFolder folder;
  SummaryWriter writer(folder.path() / "made" / "here");
  EXPECT_EQ(writer.log_dir(), folder.path() / "made" / "here");
  writer.add_scalar("loss/train", 0.1, 0);
  writer.add_scalar("lr", 1e-5, 0);
  writer.add_scalar("loss/train", -3, 1'000'000'000'000);
  writer.add_text("note", "**f\xc3\xbcnf**", 2);
  writer.close();
  const auto files = folder.event_files("made/here");
  ASSERT_EQ(files.size(), 1u);
  EXPECT_TRUE(says(files[0], "." + std::to_string(getpid()) + "."));
  const std::vector<json> events = events_in(files[0]);
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0], json::parse(R"({"step": 0, "version": "brain.Event:2"})"));
  EXPECT_EQ(events[1], json::parse(R"({"step": 0, "tag": "loss/train", "value": "0.10000000149011612"})"));
  EXPECT_EQ(events[2], json::parse(R"({"step": 0, "tag": "lr", "value": "9.999999747378752e-06"})"));
  EXPECT_EQ(events[3], json::parse(R"({"step": 1000000000000, "tag": "loss/train", "value": "-3.0"})"));
  EXPECT_EQ(events[4], json::parse(R"({"step": 2, "tag": "note/text_summary", "text": [7, "**fünf**", "text"]})"));
  EXPECT_EQ(events[5]["left"], 0);
  const std::vector<json> lines = json_lines(folder.text_of("made/here/scalars.jsonl"));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["step"], 0);
  EXPECT_GT(lines[0]["wall_time"], 1.7e9);
  EXPECT_EQ(lines[0]["scalars"], (json{{"loss/train", 0.1}, {"lr", 1e-5}}));
  EXPECT_EQ(lines[1]["scalars"], (json{{"loss/train", -3}}));
}

TEST(SummaryWriter, WritesNumbersThatJsonDoesNotHaveAsStrings) {
  const LogFolder folder;
  SummaryWriter writer(folder.path());
  const double infinity = std::numeric_limits<double>::infinity();
  const std::map<std::string, double> odd = {
      {"nan", std::nan("")}, {"up", infinity}, {"down", -infinity}, {"large", 1e300}, {"\"q\\", 0}};
  for (const auto& [tag, value] : odd) writer.add_scalar(tag, value, 7);
  writer.flush();
  const std::vector<json> lines = json_lines(folder.text_of("scalars.jsonl"));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["scalars"],
            (json{{"nan", "NaN"}, {"up", "Infinity"}, {"down", "-Infinity"}, {"large", 1e300}, {"\"q\\", 0}}));
  std::map<std::string, std::string> values;
  for (const json& event : events_in(folder.event_files().at(0)))
    if (event.contains("tag")) values[event["tag"]] = event["value"];
  EXPECT_EQ(values, (std::map<std::string, std::string>{
                        {"nan", "nan"}, {"up", "inf"}, {"down", "-inf"}, {"large", "inf"}, {"\"q\\", "0.0"}}));
}

TEST(SummaryWriter, WritesAnObjectForAStepOfManyScalarsWithTheLastValues) {
  const LogFolder folder;
  SummaryWriter writer(folder.path(), {.max_queue = 3});
  for (int step = 0; step < 3; ++step)
    for (int repeat = 0; repeat < 2; ++repeat)
      for (int i = 0; i < 20; ++i) writer.add_scalar("value/" + std::to_string(i), step * 100 + i + repeat, step);
  EXPECT_EQ(json_lines(folder.text_of("scalars.jsonl")).size(), 2u) << "the steps that ended";
  EXPECT_GE(events_in(folder.event_files().at(0)).size(), 120u - 3) << "more than max_queue wait";
  writer.flush();
  const std::vector<json> lines = json_lines(folder.text_of("scalars.jsonl"));
  ASSERT_EQ(lines.size(), 3u);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(lines[step]["scalars"].size(), 20u);
    EXPECT_EQ(lines[step]["scalars"]["value/7"], step * 100 + 8);
  }
}

TEST(SummaryWriter, WritesWhenTimeHasPassed) {
  const LogFolder folder;
  SummaryWriter writer(folder.path(), {.flush_secs = std::chrono::seconds(0)});
  writer.add_scalar("loss", 1, 1);
  EXPECT_EQ(events_in(folder.event_files().at(0)).size(), 3u);
  EXPECT_EQ(json_lines(folder.text_of("scalars.jsonl")).size(), 1u);
}

TEST(SummaryWriter, WaitsForTheLongestTimeThatThereIs) {
  const LogFolder folder;
  SummaryWriter writer(folder.path(), {.flush_secs = std::chrono::seconds::max()});
  writer.add_scalar("loss", 1, 1);
  EXPECT_EQ(folder.text_of("scalars.jsonl"), "");
}

TEST(SummaryWriter, GivesEachOfSeveralScalarsAFolder) {
  const LogFolder folder;
  SummaryWriter writer(folder.path());
  for (int step = 0; step < 2; ++step) writer.add_scalars("loss/all", {{"train", step}, {"valid/a", step + 10}}, step);
  writer.close();
  for (const auto& [name, first] : {std::pair{"loss_all_train", 0}, std::pair{"loss_all_valid_a", 10}}) {
    const std::vector<json> events = events_in(folder.event_files(name).at(0));
    ASSERT_EQ(events.size(), 4u) << name;
    EXPECT_EQ(events[0]["version"], "brain.Event:2");
    for (int step = 0; step < 2; ++step) {
      EXPECT_EQ(events[1 + step]["tag"], "loss/all");
      EXPECT_EQ(std::stod(events[1 + step]["value"].get<std::string>()), first + step);
    }
  }
  EXPECT_EQ(json_lines(folder.text_of("scalars.jsonl")).at(1)["scalars"],
            (json{{"loss/all/train", 1}, {"loss/all/valid/a", 11}}));
}

TEST(SummaryWriter, AResumedRunMakesAnotherFileAndPurges) {
  const LogFolder folder;
  {
    SummaryWriter writer(folder.path());
    for (int step = 0; step < 5; ++step) writer.add_scalar("loss", step, step);
  }
  std::ofstream(folder.path() / "scalars.jsonl", std::ios::app) << "{\"step\":5,\"wal";  // As SIGKILL may leave it.
  SummaryWriter resumed(folder.path(), {.purge_step = 3, .filename_suffix = ".again"});
  resumed.add_scalar("loss", 33, 3);
  resumed.add_scalars("both", {{"a", 1}}, 3);
  resumed.close();
  const auto files = folder.event_files();
  ASSERT_EQ(files.size(), 2u);
  const auto again = std::ranges::find_if(files, [](const std::string& file) { return file.ends_with(".again"); });
  ASSERT_NE(again, files.end());
  const std::vector<json> events = events_in(*again);
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events[0], json::parse(R"({"step": 3, "version": "brain.Event:2"})"));
  EXPECT_EQ(events[1], json::parse(R"({"step": 3, "session": 1})"));
  EXPECT_EQ(events[2]["value"], "33.0");
  EXPECT_EQ(events_in(folder.event_files("both_a").at(0)).at(1)["session"], 1);
  const std::vector<json> lines = json_lines(folder.text_of("scalars.jsonl"));
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_TRUE(lines[5].is_discarded()) << "the half line, by itself";
  EXPECT_EQ(lines[6]["purge_step"], 3);
  EXPECT_EQ(lines[7]["scalars"]["loss"], 33);
}

TEST(SummaryWriter, LosesNothingThatWasFlushedToSigkill) {
  for (const int limit : {1000, 20'000, 100'000}) {
    const LogFolder folder;
    const ForkShared<std::atomic<int>> flushed;
    const pid_t child = fork();
    if (child == 0) {
      SummaryWriter writer(folder.path(), {.max_queue = 2});
      for (int step = 0;; ++step) {
        writer.add_scalar("loss", step, step);
        writer.add_text("text", std::string(static_cast<std::size_t>(step % 400), 'x'), step);
        if (step % 7 != 6) continue;
        writer.flush();
        flushed->store(step);
      }
    }
    const auto bytes = [&] {
      const auto files = folder.event_files();
      return files.empty() ? 0 : static_cast<int>(std::filesystem::file_size(files[0]));
    };
    EXPECT_TRUE(test::wait_until([&] { return bytes() > limit; }));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    int step = 0;
    for (const json& event : events_in(folder.event_files().at(0))) {
      if (!event.contains("value")) continue;
      EXPECT_EQ(event["step"], step++);
    }
    EXPECT_GT(step, flushed->load());
    const std::vector<json> lines = json_lines(folder.text_of("scalars.jsonl"));
    ASSERT_GT(static_cast<int>(lines.size()), flushed->load());
    for (int i = 0; i <= flushed->load(); ++i) EXPECT_EQ(lines[i]["scalars"]["loss"], i);
  }
}

TEST(SummaryWriter, RefusesBadTagsAndTexts) {
  const LogFolder folder;
  SummaryWriter writer(folder.path());
  EXPECT_TRUE(says(usage_error_of([&] { writer.add_scalar("", 1); }), "add_scalar: the tag is empty"));
  EXPECT_TRUE(says(usage_error_of([&] { writer.add_scalar("a\nb", 1); }), "line break"));
  EXPECT_TRUE(says(usage_error_of([&] { writer.add_histogram("\x7f", std::vector<double>{1}); }), "add_histogram"));
  EXPECT_TRUE(says(usage_error_of([&] { writer.add_scalars("", {{"a", 1}}); }), "add_scalars"));
  EXPECT_TRUE(says(usage_error_of([&] { writer.add_scalars("a", {{"", 1}}); }), "add_scalars"));
  for (const char* bad : {"\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "ok \xe2\x82"})
    EXPECT_TRUE(says(usage_error_of([&] { writer.add_text("tag", bad); }), "not UTF-8")) << bad;
  writer.add_text("tag", "\xe2\x82\xac \xf0\x9f\x98\x80 a\nb");
  writer.close();
  writer.close();
  EXPECT_TRUE(says(usage_error_of([&] { writer.flush(); }), "closed"));
  EXPECT_EQ(events_in(folder.event_files().at(0)).size(), 3u);
}

TEST(SummaryWriter, IsOfOneProcess) {
  const LogFolder folder;
  SummaryWriter writer(folder.path());
  writer.add_scalar("loss", 1, 1);
  const pid_t child = fork();
  if (child == 0) {
    const std::string error = usage_error_of([&] { writer.add_scalar("loss", 2, 2); });
    writer.close();
    _exit(says(error, "forked") ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  writer.close();
  EXPECT_EQ(events_in(folder.event_files().at(0)).size(), 3u) << "the child wrote nothing";
}

TEST(SummaryWriter, CanBeMoved) {
  const LogFolder folder;
  SummaryWriter first(folder.path());
  SummaryWriter writer = std::move(first);
  writer.add_scalar("loss", 1);
  // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
  EXPECT_TRUE(says(usage_error_of([&] { first.add_scalar("loss", 1); }), "moved from"));
}

TEST(SummaryWriter, WritesWhatItHasBeforeAnotherIsAssigned) {
  const LogFolder folder, other;
  SummaryWriter writer(folder.path());
  writer.add_scalar("loss", 1, 7);
  writer = SummaryWriter(other.path());
  EXPECT_EQ(json_lines(folder.text_of("scalars.jsonl")).at(0)["step"], 7);
  EXPECT_EQ(events_in(folder.event_files().at(0)).size(), 3u);
  writer.add_scalar("loss", 1, 8);
  writer.close();
  EXPECT_EQ(json_lines(other.text_of("scalars.jsonl")).at(0)["step"], 8);
}

}  // namespace
}  // namespace retinue
