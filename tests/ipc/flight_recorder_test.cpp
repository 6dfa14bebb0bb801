#include "ipc/records/flight_recorder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include "ipc/memory/process_table.h"
#include "ipc/records/recorded_calls.h"
#include "os/sync/clock.h"
#include "support/job_test.h"
#include "support/ranks.h"
#include "support/usage_error.h"

namespace retinue::test {
namespace {

CallWords some_words() {
  CallWords words{};
  std::snprintf(words.kinds[2], sizeof words.kinds[2], "barrier");
  std::snprintf(words.dtypes[3], sizeof words.dtypes[3], "fp32");
  std::snprintf(words.ops[4], sizeof words.ops[4], "sum");
  return words;
}

void set_calls(const char* calls) {
  setenv("RETINUE_FLIGHT_RECORDER", calls, 1);
}

/// In a job of its own for each test, whose memory the recorder keeps to the end.
class FlightRecorderTest : public JobTest {
 protected:
  ~FlightRecorderTest() override {
    unsetenv("RETINUE_FLIGHT_RECORDER");
    memory_->release_all(memory_->own_slot());
  }

  std::shared_ptr<FlightRecorder> recorder() { return FlightRecorder::of(memory_, some_words()); }
  Recording read() { return read_recording(*memory_, memory_->own_slot()).value(); }
};

TEST_F(FlightRecorderTest, KeepsWhatIsSaidOfACall) {
  const auto recorder = this->recorder();
  EXPECT_EQ(this->recorder(), recorder);
  const std::uint64_t before = monotonic_ns();
  auto call = recorder->begin({.started = TickClock::now(),
                               .sequence = 7,
                               .kind = 2,
                               .dtype = 3,
                               .op = 4,
                               .group = recorder->add_group("context 1/world", 1, 4),
                               .peer = 3,
                               .tag = -2,
                               .count = 10,
                               .bytes = 40,
                               .site = recorder->find_site("train.cpp", 88)});
  Recording recording = read();
  ASSERT_EQ(recording.calls.size(), 1u);
  const RecordedCall seen = recording.calls[0];
  EXPECT_EQ(recording.pid, getpid());
  EXPECT_EQ(recording.total, 1u);
  EXPECT_EQ(recording.kind_of(seen), "barrier");
  EXPECT_EQ(recording.dtype_of(seen), "fp32");
  EXPECT_EQ(recording.op_of(seen), "sum");
  EXPECT_EQ(recording.group_of(seen).name, "context 1/world");
  EXPECT_EQ(recording.group_of(seen).rank, 1);
  EXPECT_EQ(recording.group_of(seen).size, 4);
  EXPECT_EQ(recording.site_of(seen).file, "train.cpp");
  EXPECT_EQ(recording.site_of(seen).line, 88u);
  EXPECT_EQ(seen.sequence, 7u);
  EXPECT_EQ(seen.peer, 3);
  EXPECT_EQ(seen.tag, -2);
  EXPECT_EQ(seen.count, 10u);
  EXPECT_EQ(seen.bytes, 40u);
  EXPECT_EQ(seen.ended_ns, 0u);
  EXPECT_GE(seen.started_ns + 1'000'000, before);  // The clocks are compared to within less.
  EXPECT_LE(seen.started_ns, monotonic_ns() + 1'000'000);

  call.set_peer(2);
  call.end();
  call.fail();  // Too late.
  recording = read();
  EXPECT_EQ(recording.calls[0].peer, 2);
  EXPECT_FALSE(recording.calls[0].failed);
  EXPECT_GE(recording.calls[0].ended_ns, recording.calls[0].started_ns);
}

TEST_F(FlightRecorderTest, TellsFailedCalls) {
  auto call = recorder()->begin({.started = TickClock::now()});
  call.fail();
  EXPECT_TRUE(read().calls.at(0).failed);
  EXPECT_NE(read().calls.at(0).ended_ns, 0u);
}

TEST_F(FlightRecorderTest, KeepsTheLastCallsOnly) {
  set_calls("1500");
  const auto recorder = this->recorder();
  auto first = recorder->begin({.sequence = 0});
  for (std::uint64_t i = 1; i < 10'000; ++i) recorder->begin({.sequence = i, .peer = 3}).end();
  first.set_peer(2);  // Its place is another's.
  first.end();
  const Recording recording = read();
  EXPECT_EQ(recording.total, 10'000u);
  ASSERT_EQ(recording.calls.size(), 2048u);
  for (std::size_t i = 0; i < recording.calls.size(); ++i) {
    EXPECT_EQ(recording.calls[i].record, 10'000 - 2048 + i + 1);
    EXPECT_EQ(recording.calls[i].sequence, 10'000 - 2048 + i);
    EXPECT_EQ(recording.calls[i].peer, 3);
  }
}

std::vector<std::uint64_t> records_of(const std::vector<RecordedCall>& calls) {
  std::vector<std::uint64_t> records;
  for (const RecordedCall& call : calls) records.push_back(call.record);
  return records;
}

TEST_F(FlightRecorderTest, IsReadOnFromWhereAReaderStood) {
  set_calls("1024");
  const auto recorder = this->recorder();
  const auto since = [&](std::uint64_t record, std::size_t limit) {
    return records_of(read_calls_since(*memory_, memory_->own_slot(), record, limit));
  };
  EXPECT_TRUE(since(1, 10).empty());
  for (int i = 0; i < 5; ++i) recorder->begin({.sequence = 1});
  EXPECT_EQ(since(1, 10), (std::vector<std::uint64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(since(4, 10), (std::vector<std::uint64_t>{4, 5}));
  EXPECT_EQ(since(1, 2), (std::vector<std::uint64_t>{4, 5}));
  EXPECT_TRUE(since(6, 10).empty());
  for (int i = 0; i < 2000; ++i) recorder->begin({.sequence = 2});
  EXPECT_EQ(since(6, 10'000).front(), 2005u - 1023u);  // Those before are kept no more.
  EXPECT_EQ(since(6, 10'000).size(), 1024u);
  const auto call = read_call(*memory_, memory_->own_slot(), 2005);
  ASSERT_TRUE(call);
  EXPECT_EQ(call->sequence, 2u);
  for (const std::uint64_t record : {0, 5, 2006}) EXPECT_FALSE(read_call(*memory_, memory_->own_slot(), record));
}

/// As a thread that stands between taking its number and saying what the call is.
TEST_F(FlightRecorderTest, IsReadOnUpToACallThatIsBeingWritten) {
  const auto recorder = this->recorder();
  for (int i = 0; i < 4; ++i) recorder->begin({.sequence = 1});
  const std::uint32_t slot = memory_->own_slot();
  auto* const head = memory_->at<RecorderHead>(process_slot(*memory_, slot).recorder.load());
  auto* const entries = memory_->at<CallEntry>(head->segments[0].load());
  entries[2].record.store(0);
  EXPECT_EQ(records_of(read_calls_since(*memory_, slot, 1, 10)), (std::vector<std::uint64_t>{1, 2}));
  entries[2].record.store(3);
  EXPECT_EQ(records_of(read_calls_since(*memory_, slot, 3, 10)), (std::vector<std::uint64_t>{3, 4}));
}

TEST_F(FlightRecorderTest, IsLeftOutOnRequest) {
  set_calls("0");
  EXPECT_EQ(recorder(), nullptr);
  EXPECT_FALSE(read_recording(*memory_, memory_->own_slot()));
  EXPECT_EQ(count_recorded_calls(*memory_, memory_->own_slot()), 0u);
  for (const char* bad : {"many", "-1", "9999999999", "10k"}) {
    set_calls(bad);
    EXPECT_NE(usage_error_of([&] { recorder(); }).find(bad), std::string::npos);
  }
}

TEST_F(FlightRecorderTest, GivesAPlaceOfAGroupThatWasLeftToANewOne) {
  const auto recorder = this->recorder();
  std::vector<std::uint16_t> groups;
  for (int i = 0; i < 128; ++i) groups.push_back(recorder->add_group("group " + std::to_string(i), 0, 2));
  recorder->leave_group(groups[5]);
  recorder->leave_group(groups[3]);
  EXPECT_EQ(recorder->add_group("new", 0, 2), groups[5]);
  EXPECT_EQ(recorder->add_group("newer", 0, 2), groups[3]);
  EXPECT_EQ(read().groups[groups[5]].name, "new");
}

TEST_F(FlightRecorderTest, HasOnePlaceForAllSitesThatAreTooMany) {
  const auto recorder = this->recorder();
  for (unsigned line = 1; line < 256; ++line) EXPECT_EQ(recorder->find_site("a.cpp", line), line);
  EXPECT_EQ(recorder->find_site("a.cpp", 300), 0u);
  EXPECT_EQ(recorder->find_site("a.cpp", 17), 17u);
}

TEST_F(FlightRecorderTest, KeepsTheEndOfALongPath) {
  std::string path(100, 'd');
  path += "/train.cpp";
  const auto recorder = this->recorder();
  recorder->begin({.site = recorder->find_site(path.c_str(), 1)});
  const Recording recording = read();
  EXPECT_EQ(recording.site_of(recording.calls.at(0)).file, ".../train.cpp");
}

TEST(FlightRecorder, OutlivesAKilledProcess) {
  run_ranks(2,
            [](const JobGroup& group) {
              if (group.rank == 1) {
                const auto recorder = FlightRecorder::of(group.memory, some_words());
                recorder->begin({.sequence = 1}).end();
                recorder->begin({.sequence = 2});
                raise(SIGKILL);
              }
              const ProcessSlot& other = process_slot(*group.memory, group.process_slots[1]);
              while (other.is_alive()) sched_yield();
              const Recording recording = read_recording(*group.memory, group.process_slots[1]).value();
              ASSERT_EQ(recording.calls.size(), 2u);
              EXPECT_NE(recording.calls[0].ended_ns, 0u);
              EXPECT_EQ(recording.calls[1].sequence, 2u);
              EXPECT_EQ(recording.calls[1].ended_ns, 0u);
            },
            {.killed = {1}});
}

// Writers go on as the reader looks: of 1,024 calls that are kept at most 400 are new in one look, so that it finds the
// others, however slow it is.
TEST(FlightRecorder, IsReadWhileSeveralThreadsWrite) {
  run_ranks(2, [](const JobGroup& group) {
    setenv("RETINUE_FLIGHT_RECORDER", "1024", 1);
    auto* const looks = reinterpret_cast<std::atomic<std::uint32_t>*>(
        group.memory->header().group_registry);  // Zeros that nobody else uses here.
    constexpr std::uint32_t kDone = ~0u;
    if (group.rank == 1) {
      const auto recorder = FlightRecorder::of(group.memory, some_words());
      const auto write = [&] {
        std::uint64_t i = 0;
        while (true) {
          const std::uint32_t look = looks->load();
          if (look == kDone) return;
          for (int call = 0; call < 100; ++call, ++i)
            recorder->begin({.started = i, .sequence = i, .count = i * 3, .bytes = i * 5}).end();
          while (looks->load() == look) std::this_thread::yield();
        }
      };
      std::thread other(write);
      write();
      other.join();
      return;
    }
    std::size_t calls = 0;
    std::uint64_t total = 0;
    while (calls < 100'000 || total < 20'000) {
      ++*looks;
      const auto recording = read_recording(*group.memory, group.process_slots[1]);
      if (!recording) continue;  // It has not begun.
      for (const RecordedCall& call : recording->calls) {
        ASSERT_EQ(call.count, call.sequence * 3);
        ASSERT_EQ(call.bytes, call.sequence * 5);
      }
      calls += recording->calls.size();
      total = recording->total;
    }
    looks->store(kDone);
  });
}

}  // namespace
}  // namespace retinue::test
