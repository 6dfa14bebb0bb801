// In groups without a guardian, where the ranks themselves say who is late.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "collective/diagnosis/late_report.h"
#include "collective/late_scene.h"
#include "ipc/memory/job_clock.h"
#include "retinue/os/detail/late_after.h"
#include "support/ranks.h"
#include "support/says.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

bool is_reported(const std::string& text) {
  return text.find("This report repeats") != std::string::npos;
}

class LateReports : public testing::TestWithParam<Lateness> {};
INSTANTIATE_TEST_SUITE_P(Of, LateReports,
                         testing::Values(Lateness::kStopped, Lateness::kSleeping, Lateness::kReading,
                                         Lateness::kLooping));

TEST_P(LateReports, TellWhatTheMissingRankDoes) {
  const LateScene scene;
  run_ranks(kLateRanks, [&](const JobGroup& group) {
    scene.captured.begin();
    play_late(scene, group, GetParam(), is_reported);
  });
  const std::string text = scene.captured.text();
  EXPECT_EQ(count_of(text, "retinue: group"), 1) << text;
  for (const std::string& words :
       {std::string("retinue: group \"waiting\": rank 2 is late\n  rank "),
        std::string(" waits in its 4th call, barrier, at "), std::string("late_scene.h:"),
        fmt::format("  rank 2 (pid {}) is missing, seen after 3 barriers, the last at ", scene.shared->late_pid.load()),
        words_for(GetParam(), scene.shared->late_pid), fmt::format("gdb -p {} ", scene.shared->late_pid.load()),
        std::string("; the wait ends with an error in 30 min.\n")})
    EXPECT_NE(text.find(words), std::string::npos) << words << " in: " << text;
}

TEST(LateReport, ComesAgainAfterTimesThatDouble) {
  const LateScene scene;
  const ForkShared<std::atomic<std::int64_t>> between;
  run_ranks(kLateRanks, [&](const JobGroup& group) {
    scene.captured.begin();
    std::chrono::steady_clock::time_point first;
    play_late(scene, group, Lateness::kLooping, [&](const std::string& text) {
      const int reports = count_of(text, "This report repeats");
      if (reports > 0 && first == std::chrono::steady_clock::time_point()) first = std::chrono::steady_clock::now();
      if (reports > 1) *between = (std::chrono::steady_clock::now() - first) / 1ms;
      return reports > 1;
    });
  });
  EXPECT_GE(between->load(), 2 * kLateAfter / 1ms - 50);
  const std::string text = scene.captured.text();
  EXPECT_EQ(count_of(text, "retinue: group"), 2) << text;
}

TEST(LateReport, IsOfTheNextLatenessFromItsBeginningOn) {
  const CapturedStderr captured;
  run_ranks(2, [&](const JobGroup& group) {
    captured.begin();
    Communicator communicator(group, {.late_after = kLateAfter});
    for (int i = 1; i <= 2; ++i) {
      if (group.rank == 1) {
        EXPECT_TRUE(wait_until([&] { return count_of(captured.text(), "This report repeats") == i; }))
            << captured.text();
      }
      communicator.barrier();
    }
  });
  EXPECT_EQ(count_of(captured.text(), "This report repeats in 2."), 2) << captured.text();
}

/// Of all its members but rank 0.
JobGroup without_first(const JobGroup& group) {
  JobGroup others = group;
  others.name = "other";
  others.process_slots.erase(others.process_slots.begin());
  --others.rank;
  return others;
}

TEST(LateReport, SaysWhereElseTheMissingRankWaits) {
  const CapturedStderr captured;
  run_ranks(3, [&](const JobGroup& group) {
    captured.begin();
    Communicator here(group, {.late_after = kLateAfter});
    if (group.rank == 0) return here.barrier();
    Communicator there(without_first(group), {.late_after = 0s});
    if (group.rank == 2) {
      EXPECT_TRUE(wait_until([&] { return is_reported(captured.text()); }));
    }
    there.barrier();
    here.barrier();
  });
  const std::string text = captured.text();
  EXPECT_NE(text.find("ranks 1 and 2 are late"), std::string::npos) << text;
  EXPECT_NE(text.find("    in group \"other\" rank 0 waits in its 1st call, barrier, at "), std::string::npos) << text;
}

TEST(LateReport, AndTheErrorSayWhereElseTheMissingRankWaits) {
  const ForkShared<std::atomic<bool>> done;
  run_ranks(3, [&](const JobGroup& group) {
    Communicator here(group, {.timeout = 2500ms, .late_after = 0s});
    if (group.rank == 0) {
      try {
        here.barrier();
        ADD_FAILURE() << "the others never came";
      } catch (const TimeoutError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find(", and in group \"other\" rank 0 waits in its 1st call, barrier, at "), std::string::npos)
            << text;
      }
      *done = true;
      return;
    }
    Communicator there(without_first(group), {.late_after = 0s});
    if (group.rank == 2) {
      EXPECT_TRUE(wait_until([&] { return done->load(); }));
    }
    there.barrier();
  });
}

TEST(LateReport, SaysWhenItComesBeforeTheEnd) {
  const CapturedStderr captured;
  run_ranks(2, [&](const JobGroup& group) {
    captured.begin();
    Communicator communicator(group, {.timeout = 6800ms, .late_after = kLateAfter});
    if (group.rank == 1) {
      EXPECT_TRUE(wait_until([&] { return count_of(captured.text(), "the wait ends with an error in ") == 1; }));
      EXPECT_TRUE(wait_until([&] { return count_of(captured.text(), "  The wait ends with an error in ") == 1; }));
    }
    communicator.barrier();
  });
  EXPECT_EQ(count_of(captured.text(), "This report repeats in 0."), 1) << captured.text();
}

TEST(LateReport, OfAMessageDoesNotTellOfOneWhoLeftACollectiveThatItIsInIt) {
  const CapturedStderr captured;
  run_ranks(2, [&](const JobGroup& group) {
    captured.begin();
    Communicator communicator(group, {.late_after = kLateAfter});
    int value = 1;
    for (int round = 0; round < 2; ++round) {
      if (group.rank == 0) {
        communicator.recv(std::span(&value, 1), 1);
      } else {
        EXPECT_TRUE(wait_until([&] { return is_reported(captured.text()); }));
        communicator.send(std::span(&value, 1), 0);
      }
      communicator.barrier();
      if (group.rank == 1) {
        const std::string who = " (pid " + std::to_string(getpid()) + ") is missing";
        EXPECT_NE(captured.text().find(who + (round == 0 ? "\n" : ", seen after 2 barriers, the last at ")),
                  std::string::npos)
            << captured.text();
        captured.clear();
      }
      if (round == 0) communicator.barrier();
    }
  });
}

TEST(LateReport, IsNoneWhereNobodyIsLateNorWhereItIsForbidden) {
  const CapturedStderr captured;
  run_ranks(2, [&](const JobGroup& group) {
    captured.begin();
    Communicator communicator(group, {.late_after = 0s});
    communicator.barrier();
    if (group.rank == 1) std::this_thread::sleep_for(2s);
    communicator.barrier();
    JobGroup other = group;
    other.name = "other";
    Communicator patient(other);
    if (group.rank == 1) std::this_thread::sleep_for(2s);
    patient.barrier();
  });
  EXPECT_EQ(captured.text(), "");
}

TEST(LateReport, DoesNotCountTheTimeInWhichTheJobIsDebugged) {
  const CapturedStderr captured;
  run_ranks(2, [&](const JobGroup& group) {
    captured.begin();
    Communicator communicator(group, {.late_after = kLateAfter});
    communicator.barrier();
    if (group.rank == 1) {
      stop_job_clock(group.memory->header());
      std::this_thread::sleep_for(3s);
      resume_job_clock(group.memory->header());
    }
    communicator.barrier();
  });
  EXPECT_EQ(captured.text(), "");
}

TEST(LateReport, TimeComesFromTheEnvironment) {
  setenv("RETINUE_LATE_AFTER_S", "2.5", 1);
  EXPECT_EQ(default_late_after(), 2500ms);
  setenv("RETINUE_LATE_AFTER_S", "0", 1);
  EXPECT_EQ(default_late_after(), 0s);
  for (const char* wrong : {"soon", "-1", "5 s", "1e10", "nan"}) {
    setenv("RETINUE_LATE_AFTER_S", wrong, 1);
    EXPECT_THROW(default_late_after(), UsageError) << wrong;
  }
  unsetenv("RETINUE_LATE_AFTER_S");
  EXPECT_EQ(default_late_after(), 10s);
}

/// A locale whose numbers have a comma, in a folder of its own. Empty: none can be made here.
std::filesystem::path locale_with_comma() {
  const std::filesystem::path folder = testing::TempDir() + fmt::format("locale_{}", getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "comma")
      << "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n";
  const std::string make =
      fmt::format("cd '{}' && I18NPATH=. localedef --no-archive -c -i comma -f ANSI_X3.4-1968 ./made", folder.string());
  static_cast<void>(std::system((make + " >made.log 2>&1").c_str()));  // Warns of all that a locale might have.
  if (std::filesystem::exists(folder / "made/LC_NUMERIC")) return folder;
  std::filesystem::remove_all(folder);
  return {};
}

TEST(LateReport, TimeFromTheEnvironmentIsTheSameInEachLocale) {
  const std::filesystem::path folder = locale_with_comma();
  if (folder.empty()) GTEST_SKIP() << "localedef makes no locale here: the package locales is missing";
  setenv("LOCPATH", folder.c_str(), 1);
  ASSERT_NE(setlocale(LC_NUMERIC, "made"), nullptr);
  ASSERT_EQ(strtod("2,5", nullptr), 2.5) << "the locale has no comma";
  setenv("RETINUE_LATE_AFTER_S", "2.5", 1);
  EXPECT_EQ(default_late_after(), 2500ms);
  setenv("RETINUE_LATE_AFTER_S", "2,5", 1);
  EXPECT_THROW(default_late_after(), UsageError);
  setlocale(LC_NUMERIC, "C");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace retinue::test
