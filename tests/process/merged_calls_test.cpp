#include "process/trace/merged_calls.h"

#include <gtest/gtest.h>

#include "process/trace/matched_messages.h"

namespace retinue {
namespace {

enum Kind : std::uint8_t { kBarrier, kSend, kReceive };

/// What a member of one group has recorded, as if it had been read at 1,000.
struct Member {
  int rank;
  int size;
  std::vector<RecordedCall> calls;
  std::string group = "world";
};

RecordedProcess process_of(const Member& member) {
  RecordedProcess process;
  process.context = 1;
  process.rank = member.rank;
  Recording& recording = process.recording;
  recording.read_ns = 1000;
  recording.total = member.calls.empty() ? 0 : member.calls.size();
  recording.calls = member.calls;
  for (std::size_t i = 0; i < recording.calls.size(); ++i) recording.calls[i].record = i + 1;
  recording.groups = {{member.group, member.rank, member.size}};
  recording.sites = {{}};
  recording.kinds = {"barrier", "send", "recv"};
  recording.dtypes = {"uint8"};
  recording.ops = {"sum"};
  return process;
}

MergedCalls merged(const std::vector<Member>& members) {
  std::vector<RecordedProcess> processes;
  for (const Member& member : members) processes.push_back(process_of(member));
  return MergedCalls(std::move(processes));
}

RecordedCall collective(std::uint64_t sequence, std::uint64_t started, std::uint64_t ended) {
  return {.started_ns = started, .ended_ns = ended, .sequence = sequence, .kind = kBarrier};
}

RecordedCall message(Kind kind, int peer, int tag) {
  return {.started_ns = 1, .ended_ns = 2, .kind = kind, .peer = peer, .tag = tag};
}

TEST(MergedCalls, TellWaitingFromTransfer) {
  const MergedCalls calls = merged(
      {{0, 2, {collective(1, 10, 60), collective(2, 70, 75)}}, {1, 2, {collective(1, 50, 65), collective(2, 90, 95)}}});
  ASSERT_EQ(calls.calls().size(), 2u);
  const MergedCall& first = calls.calls()[0];
  EXPECT_TRUE(first.is_whole);
  EXPECT_EQ(calls.process_of(first.calls.back()).rank, 1);
  EXPECT_EQ(calls.times_of({0, 0})->waiting_ns, 40u);
  EXPECT_EQ(calls.times_of({0, 0})->transfer_ns, 10u);
  EXPECT_EQ(calls.times_of({1, 0})->waiting_ns, 0u);
  EXPECT_EQ(calls.times_of({1, 0})->transfer_ns, 15u);
  // One that returned before the last had come, as the root of a broadcast may.
  EXPECT_EQ(calls.times_of({0, 1})->waiting_ns, 5u);
  EXPECT_EQ(calls.times_of({0, 1})->transfer_ns, 0u);
}

TEST(MergedCalls, LastUntilTheyWereReadWhereTheyAreUnderWay) {
  const MergedCalls calls = merged({{0, 2, {collective(1, 10, 0)}}, {1, 2, {collective(1, 400, 0)}}});
  EXPECT_EQ(calls.times_of({0, 0})->waiting_ns, 390u);
  EXPECT_EQ(calls.times_of({0, 0})->transfer_ns, 600u);
}

TEST(MergedCalls, AreNotWholeWithoutAMember) {
  const MergedCalls calls = merged({{0, 3, {collective(1, 10, 60)}}, {2, 3, {collective(1, 50, 60)}}});
  ASSERT_EQ(calls.calls().size(), 1u);
  EXPECT_FALSE(calls.calls()[0].is_whole);
  EXPECT_FALSE(calls.times_of({0, 0}));
  EXPECT_EQ(calls.groups()[0].members, (std::vector<std::uint32_t>{0, MergedGroup::kUnknown, 1}));
}

/// It ended its calls before: who waits for it does so until the own end.
TEST(MergedCalls, WaitForAMemberThatNeverCame) {
  const MergedCalls calls = merged({{0, 3, {collective(1, 10, 20), collective(2, 100, 700)}},
                                    {1, 3, {collective(1, 10, 20), collective(2, 400, 0)}},
                                    {2, 3, {collective(1, 10, 20)}}});
  ASSERT_EQ(calls.calls().size(), 2u);
  EXPECT_TRUE(calls.calls()[0].missing.empty());
  EXPECT_EQ(calls.calls()[1].missing, std::vector<std::uint32_t>{2});
  for (const std::uint32_t process : {0u, 1u}) {
    const auto times = calls.times_of({process, 1});
    ASSERT_TRUE(times);
    EXPECT_EQ(times->waiting_ns, 600u);
    EXPECT_EQ(times->transfer_ns, 0u);
    EXPECT_EQ(times->late, 2u);
  }
}

TEST(MergedCalls, WaitForARankThatNeverMadeTheGroup) {
  RecordedProcess failed;
  failed.context = 1;
  failed.rank = 1;
  const RecordedProcess waits = process_of({0, 2, {collective(1, 10, 60)}});
  EXPECT_EQ(MergedCalls({waits, failed}).times_of({0, 0})->late, 1u);
  // One of another group of ranks is no member.
  failed.context = 2;
  EXPECT_FALSE(MergedCalls({waits, failed}).times_of({0, 0}));
}

/// Long runs keep their last calls only.
TEST(MergedCalls, DoNotWaitForAMemberWhoseCallWasOverwritten) {
  RecordedProcess later = process_of({1, 2, {collective(2, 70, 80)}});
  const RecordedProcess other = process_of({0, 2, {collective(1, 10, 60)}});
  EXPECT_FALSE(MergedCalls({other, later}).times_of({0, 0}));
  RecordedProcess elsewhere = process_of({1, 2, {collective(7, 70, 80)}, "another group"});
  elsewhere.recording.groups.push_back({"world", 1, 2});
  EXPECT_EQ(MergedCalls({other, elsewhere}).times_of({0, 0})->late, 1u);
  elsewhere.recording.calls.front().record = 2000;
  EXPECT_FALSE(MergedCalls({other, elsewhere}).times_of({0, 0}));
}

TEST(MergedCalls, OfTwoGroupsAreNotMixed) {
  const MergedCalls calls = merged({{0, 1, {collective(1, 10, 60)}, "left"}, {0, 1, {collective(1, 50, 60)}, "right"}});
  EXPECT_EQ(calls.groups().size(), 2u);
  EXPECT_EQ(calls.calls().size(), 2u);
}

/// Who asks for a group of no size, or is a member beyond it, was overwritten.
TEST(MergedCalls, StandWhateverSomebodyWrote) {
  const MergedCalls calls = merged({{-5, 1 << 30, {collective(1, 10, 60)}}, {7, 2, {message(kSend, 300, 0)}}});
  EXPECT_LE(calls.groups()[0].members.size(), 1024u);
  EXPECT_TRUE(match_messages(calls).empty());
}

std::vector<std::uint64_t> numbers_of(const MergedCalls& calls, std::uint32_t process) {
  std::vector<std::uint64_t> numbers(calls.processes()[process].recording.calls.size());
  for (const auto& [way, messages] : match_messages(calls))
    for (const NumberedMessage& each : messages)
      if (each.call.process == process) numbers[each.call.call] = each.number;
  return numbers;
}

TEST(MatchedMessages, MeetInOrderByTag) {
  const MergedCalls calls = merged(
      {{0, 2, {message(kSend, 1, 5), message(kSend, 1, 6), message(kSend, 1, 5), message(kReceive, 1, 9)}},
       {1, 2, {message(kReceive, 0, 6), message(kReceive, 0, -1), message(kReceive, 0, 5), message(kSend, 0, 9)}}});
  EXPECT_EQ(numbers_of(calls, 0), (std::vector<std::uint64_t>{1, 2, 3, 1}));
  EXPECT_EQ(numbers_of(calls, 1), (std::vector<std::uint64_t>{2, 1, 3, 1}));
}

TEST(MatchedMessages, HaveNumbersOfTheirOwnWhereTheyMetNothing) {
  const MergedCalls calls = merged({{0, 2, {message(kSend, 1, 5)}}, {1, 2, {message(kReceive, 0, 6)}}});
  EXPECT_EQ(numbers_of(calls, 0), (std::vector<std::uint64_t>{1}));
  EXPECT_EQ(numbers_of(calls, 1), (std::vector<std::uint64_t>{2}));
}

TEST(MatchedMessages, AreLeftOutWhereTheFirstAreGone) {
  std::vector<RecordedProcess> processes = {process_of({0, 2, {message(kSend, 1, 5)}}),
                                            process_of({1, 2, {message(kReceive, 0, 5)}})};
  processes[0].recording.calls[0].record = 2000;
  processes[0].recording.total = 2000;
  EXPECT_TRUE(match_messages(MergedCalls(processes)).empty());
}

}  // namespace
}  // namespace retinue
