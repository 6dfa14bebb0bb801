#include "collective/board/path_table.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "collective/session/session.h"
#include "os/machine/cpus.h"
#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "retinue/collective/explain.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

namespace fs = std::filesystem;

/// A home of the test's own, and no table from elsewhere.
class PathTableTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "retinue-paths-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    home_ = name;
    setenv("XDG_CACHE_HOME", home_.c_str(), 1);
    unsetenv("RETINUE_PATH_TABLE");
  }
  void TearDown() override { fs::remove_all(home_); }

  fs::path home_;
};

/// How `count` floats come out of an all_reduce and a broadcast, in private memory and in job memory.
void check_results(Communicator& group, std::size_t count) {
  const JobGroup& members = group.group();
  const BlockHandle block = members.memory->allocate(count * sizeof(float));
  std::vector<float> own(count);
  for (float* data : {own.data(), members.memory->at<float>(block.offset)}) {
    std::iota(data, data + count, static_cast<float>(group.rank()));
    group.all_reduce(std::span(data, count));
    const auto size = static_cast<float>(group.size());
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(data[i], size * static_cast<float>(i) + size * (size - 1) / 2) << i << " of " << count;
    std::fill(data, data + count, static_cast<float>(group.rank()));
    group.broadcast(std::span(data, count), group.size() - 1);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], size - 1) << i << " of " << count;
    group.barrier();
  }
  members.memory->release(block);
}

TEST(PathTable, IsTextAndBack) {
  EXPECT_EQ(parse_path_table("", "here"), PathTable());
  const PathTable table = {.staged_in_job = 1,
                           .staged_in_job_one_way = 2,
                           .staged = 3,
                           .staged_one_way = 4,
                           .staged_reads = 5,
                           .stored_plainly = 6,
                           .smallest_chunk = 7,
                           .sent_at_once = 8,
                           .one_level = 9};
  EXPECT_EQ(parse_path_table(text_of(table), "here"), table);
  EXPECT_EQ(parse_path_table("staged=100", "here").staged, 100u);
}

TEST(PathTable, RefusesWhatItDoesNotKnow) {
  for (const char* const text : {"staged", "staged=", "staged=8K", "staged=-1", "staged=65537", "other=1", "=", ","}) {
    try {
      parse_path_table(text, "RETINUE_PATH_TABLE");
      ADD_FAILURE() << text;
    } catch (const UsageError& error) {
      EXPECT_EQ(std::string(error.what()).find("RETINUE_PATH_TABLE: "), 0u) << error.what();
    }
  }
}

TEST(PathTable, MovesABorderOnlyForWhatIsClearlyFaster) {
  using Samples = std::vector<BorderSample>;
  const auto border = [](const Samples& samples) { return border_of(samples, 8192); };
  EXPECT_EQ(border({}), 8192u);
  EXPECT_EQ(border({{4096, 1, 1}, {8192, 1, 1}, {16384, 1, 1}}), 8192u);
  EXPECT_EQ(border({{4096, 1.1, 1}, {8192, 1.1, 1}, {16384, 1, 1.1}}), 8192u);
  EXPECT_EQ(border({{4096, 1, 2}, {8192, 3, 2}, {16384, 1, 9}}), 4096u);
  EXPECT_EQ(border({{4096, 1, 2}, {8192, 1, 2}, {16384, 1, 2}, {32768, 1, 1}}), 16384u);
  EXPECT_EQ(border({{4096, 2, 1}, {8192, 2, 1}, {16384, 2, 1}}), 2048u);
}

TEST_F(PathTableTest, IsMeasuredOnceAndKeptForLaterJobs) {
  if (allowed_cpus().size() < 2 || usable_cpus() < 2) GTEST_SKIP() << "two ranks would share a CPU";
  const auto file = path_table_file();
  ASSERT_TRUE(file && file->starts_with(home_.string())) << *file;
  run_ranks(2, [](const JobGroup& group) {
    Session session(group, {});
    EXPECT_EQ(session.paths_source(), TableSource::kToMeasure);
    EXPECT_TRUE(session.waiter().spins());
  });
  run_ranks(2, [&](const JobGroup& group) {
    Communicator first(group);
    check_results(first, 1000);
    EXPECT_NE(explain_paths(first).find("(measured)"), std::string::npos) << explain_paths(first);
    EXPECT_TRUE(fs::exists(*file));
    Communicator second(group);
    EXPECT_NE(explain_paths(second).find("(measured)"), std::string::npos) << explain_paths(second);
    first.barrier();
  });
  run_ranks(3, [](const JobGroup& group) {
    Communicator later(group);
    EXPECT_NE(explain_paths(later).find("(measured by an earlier job)"), std::string::npos) << explain_paths(later);
  });
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(*file).parent_path()), {}), 1) << "drafts are left";
}

TEST_F(PathTableTest, IsBuiltInWhereNothingCanBeKept) {
  setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    EXPECT_NE(explain_paths(communicator).find("(built in)"), std::string::npos) << explain_paths(communicator);
  });
}

TEST_F(PathTableTest, IsBuiltInWithoutAHomeWhichIsNotMade) {
  unsetenv("XDG_CACHE_HOME");
  const fs::path house = home_ / "house";
  setenv("HOME", house.c_str(), 1);
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    EXPECT_NE(explain_paths(communicator).find("(built in)"), std::string::npos) << explain_paths(communicator);
  });
  EXPECT_FALSE(fs::exists(house));
}

TEST_F(PathTableTest, IsMeasuredAnewInPlaceOfATornOne) {
  const auto file = path_table_file();
  fs::create_directories(fs::path(*file).parent_path());
  std::ofstream(*file) << "staged_in_job=12,sta";
  EXPECT_NE(first_path_table().source, TableSource::kCache);
}

TEST_F(PathTableTest, OfTheEnvironmentGoesFirstAndChangesNoResult) {
  for (const char* const text :
       {"staged_in_job=0,staged=0", "staged_in_job=65536,staged_reads=1000000,stored_plainly=0",
        "staged=65536,stored_plainly=1000000,staged_reads=0", "staged=30000,staged_one_way=65536,stored_plainly=5000",
        "staged=0,smallest_chunk=4096", "staged=0,smallest_chunk=131072"}) {
    setenv("RETINUE_PATH_TABLE", text, 1);
    for (const int size : {2, 3})
      run_ranks(size, [](const JobGroup& group) {
        Communicator communicator(group);
        for (const std::size_t count : {1, 9, 600, 2048, 2049, 16384, 16385}) check_results(communicator, count);
      });
  }
}

TEST_F(PathTableTest, OfTheEnvironmentChangesNoMessage) {
  for (const char* const text : {"sent_at_once=0", "sent_at_once=100000000"}) {
    setenv("RETINUE_PATH_TABLE", text, 1);
    run_ranks(3, [](const JobGroup& group) {
      Communicator communicator(group);
      const int next = (group.rank + 1) % 3;
      const int before = (group.rank + 2) % 3;
      for (const std::size_t count : {0, 1, 40, 41, 16384, 16385, 65536, 65537, 300000}) {
        const std::vector<std::uint8_t> sent(count, static_cast<std::uint8_t>(group.rank + 1));
        std::vector<std::uint8_t> received(count);
        for (int i = 0; i < 3; ++i) {
          communicator.sendrecv(std::span(sent), next, std::span(received), before);
          ASSERT_EQ(received, std::vector<std::uint8_t>(count, static_cast<std::uint8_t>(before + 1)));
        }
      }
    });
  }
}

TEST_F(PathTableTest, HasFewerHopsForMoreMembersThanCpus) {
  if (usable_cpus() > 32) GTEST_SKIP() << "it would take very many ranks";
  const PathTable fewer_hops = {.staged_in_job_one_way = PathTable().staged,
                                .staged_one_way = PathTable().staged,
                                .smallest_chunk = kChunkBytes,
                                .sent_at_once = PathTable().staged,
                                .one_level = kMaxProcesses};
  // The first group of a job would measure them, were it no crowd.
  run_ranks(usable_cpus() + 1, [&](const JobGroup& group) {
    Communicator communicator(group);
    const std::string text = explain_paths(communicator);
    EXPECT_NE(text.find("(built in): " + text_of(fewer_hops)), std::string::npos) << text;
    check_results(communicator, 50000);
    EXPECT_EQ(Session(group, {}).paths(), fewer_hops);
  });
  setenv("RETINUE_PATH_TABLE", "default", 1);
  run_ranks(usable_cpus() + 1, [](const JobGroup& group) { EXPECT_EQ(Session(group, {}).paths(), PathTable()); });
}

TEST_F(PathTableTest, IsExplained) {
  setenv("RETINUE_PATH_TABLE", "staged_in_job=2048,staged_in_job_one_way=0,staged=5000,staged_one_way=3000", 1);
  run_ranks(2, [](const JobGroup& group) {
    const std::string text = explain_paths(Communicator(group));
    EXPECT_NE(text.find("(RETINUE_PATH_TABLE): staged_in_job=2048,staged_in_job_one_way=0,staged=5000,"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("inline to 32 B, staged to 2 KiB, direct"), std::string::npos) << text;
    EXPECT_NE(text.find("inline to 32 B, direct"), std::string::npos) << text;
    EXPECT_NE(text.find("inline to 16 B, staged to 2500 B, chunked"), std::string::npos) << text;
    EXPECT_NE(text.find("inline to 32 B, staged to 3000 B, chunked"), std::string::npos) << text;
    // Nothing of several buffers travels in lines.
    EXPECT_NE(text.find("all_reduce_coalesced  staged to 2 KiB, direct"), std::string::npos) << text;
  });
}

TEST_F(PathTableTest, SaysWhatIsWrongInTheEnvironment) {
  setenv("RETINUE_PATH_TABLE", "staged=lots", 1);
  run_ranks(2, [](const JobGroup& group) { EXPECT_THROW(Communicator{group}, UsageError); });
}

/// Each bound to one CPU: none of them alone may use as many as there are ranks.
TEST(PathTable, RanksOnCpusOfTheirOwnSpin) {
  const std::vector<int> cpus = allowed_cpus();
  if (cpus.size() < 2 || usable_cpus() < 2) GTEST_SKIP() << "two ranks would share a CPU";
  run_ranks(2, [&](const JobGroup& group) {
    set_allowed_cpus({cpus[static_cast<std::size_t>(group.rank)]});
    Session session(group, {});
    EXPECT_TRUE(session.waiter().spins());
  });
}

}  // namespace
}  // namespace retinue::test
