// What the flight recorder says of the calls of communicators.
#include <gtest/gtest.h>
#include <sched.h>

#include <csignal>
#include <string>
#include <vector>

#include "collective/thread_engine.h"
#include "ipc/memory/process_table.h"
#include "ipc/records/recorded_calls.h"
#include "retinue/collective/communicator.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

Recording recording_of(const JobGroup& group, int rank) {
  return read_recording(*group.memory, group.process_slots[static_cast<std::size_t>(rank)]).value();
}

/// As "all_reduce fp32 sum x10 = 40 bytes".
std::string text_of(const Recording& recording, const RecordedCall& call) {
  std::string text = recording.kind_of(call);
  if (call.count != 0)
    text += " " + recording.dtype_of(call) + " " + recording.op_of(call) + " x" + std::to_string(call.count) + " = " +
            std::to_string(call.bytes) + " bytes";
  return text;
}

TEST(CallLog, HasEachCollectiveOfTheProgramAndNoOther) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group);
    std::vector<float> values(10, 1);
    std::vector<float> parts(30);
    const unsigned first_line = __LINE__ + 1;
    communicator.barrier();
    communicator.all_reduce(values.data(), values.size(), Dtype::kFloat32, ReduceOp::kMax);
    communicator.broadcast(values.data(), 8, 2);
    communicator.all_gather(std::span<const float>(values), std::span(parts));
    communicator.reduce_scatter(parts.data(), values.data(), 10, Dtype::kFloat32, ReduceOp::kSum);
    const Recording recording = recording_of(group, group.rank);
    std::vector<std::string> texts;
    for (const RecordedCall& call : recording.calls) texts.push_back(text_of(recording, call));
    EXPECT_EQ(texts, (std::vector<std::string>{"barrier", "all_reduce fp32 max x10 = 40 bytes",
                                               "broadcast bytes sum x8 = 8 bytes", "all_gather fp32 sum x10 = 40 bytes",
                                               "reduce_scatter fp32 sum x10 = 120 bytes"}));
    for (std::size_t i = 0; i < recording.calls.size(); ++i) {
      const RecordedCall& call = recording.calls[i];
      EXPECT_EQ(call.sequence, i + 1);
      EXPECT_EQ(recording.site_of(call).line, first_line + i);
      EXPECT_TRUE(recording.site_of(call).file.ends_with("call_log_test.cpp"));
      EXPECT_EQ(recording.group_of(call).name, group.name);
      EXPECT_EQ(recording.group_of(call).rank, group.rank);
      EXPECT_FALSE(call.failed);
      EXPECT_GE(call.ended_ns, call.started_ns);
      EXPECT_GT(call.started_ns, 0u);
      EXPECT_GE(call.started_ns, i == 0 ? 0 : recording.calls[i - 1].ended_ns);
    }
    EXPECT_EQ(recording.calls[2].peer, 2);
    communicator.barrier();
  });
}

TEST(CallLog, HasThoseThatGoByAnEngine) {
  run_ranks(1, [](const JobGroup& group) {
    run_engine_ranks(2,
                     [](Communicator& communicator) {
                       std::vector<float> values(10, 1);
                       communicator.barrier();
                       communicator.all_reduce(values.data(), values.size(), Dtype::kFloat32, ReduceOp::kMax);
                     },
                     {.memory = group.memory});
    const Recording recording = recording_of(group, 0);
    for (const int rank : {0, 1}) {
      std::vector<std::string> texts;
      for (const RecordedCall& call : recording.calls) {
        if (recording.group_of(call).rank != rank) continue;
        texts.push_back(text_of(recording, call));
        EXPECT_EQ(call.sequence, texts.size());
        EXPECT_GE(call.ended_ns, call.started_ns);
        EXPECT_FALSE(call.failed);
      }
      EXPECT_EQ(texts, (std::vector<std::string>{"barrier", "all_reduce fp32 max x10 = 40 bytes"})) << rank;
    }
  });
}

TEST(CallLog, HasCollectivesThatWereBegun) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    int a = 1;
    int b = 1;
    const Request first = communicator.start(CollectiveCall::all_reduce(&a, 1, Dtype::kInt32, ReduceOp::kSum));
    const Request second = communicator.start(CollectiveCall::all_reduce(&b, 1, Dtype::kInt32, ReduceOp::kSum));
    EXPECT_EQ(recording_of(group, group.rank).calls.size(), 1u);  // The second begins when the first has ended.
    second.wait();
    const Recording recording = recording_of(group, group.rank);
    ASSERT_EQ(recording.calls.size(), 2u);
    for (const RecordedCall& call : recording.calls) EXPECT_NE(call.ended_ns, 0u);
    first.wait();
  });
}

TEST(CallLog, HasMessages) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    std::vector<std::byte> data(100'000);
    std::vector<std::byte> room(100'000);
    const int other = 1 - group.rank;
    if (group.rank == 0) {
      communicator.send(std::span(data).first(8), 1, 5);
      communicator.send(std::span(data), 1, 6);
    } else {
      communicator.recv(std::span(room), kAnySource, 5);
      communicator.recv(std::span(room), kAnySource, kAnyTag);
    }
    communicator.sendrecv(std::span(data).first(4), other, std::span(room), other, 7);
    const Recording recording = recording_of(group, group.rank);
    ASSERT_EQ(recording.calls.size(), 4u);
    const std::string kind = group.rank == 0 ? "send" : "recv";
    for (std::size_t i = 0; i < 2; ++i) {
      const RecordedCall& call = recording.calls[i];
      EXPECT_EQ(recording.kind_of(call), kind);
      EXPECT_EQ(call.peer, other);
      EXPECT_EQ(call.tag, group.rank == 1 && i == 1 ? kAnyTag : 5 + static_cast<int>(i));
      EXPECT_EQ(call.sequence, i + 1);
      EXPECT_NE(call.ended_ns, 0u);
    }
    EXPECT_EQ(recording.kind_of(recording.calls[2]), "recv");
    EXPECT_EQ(recording.kind_of(recording.calls[3]), "send");
    EXPECT_EQ(recording.calls[3].bytes, 4u);
    communicator.barrier();
  });
}

TEST(CallLog, TellsWhatFailed) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    int value = 1;
    if (group.rank == 0)
      EXPECT_THROW(communicator.barrier(), CollectiveMismatch);
    else
      EXPECT_THROW(communicator.all_reduce(&value, 1, Dtype::kInt32, ReduceOp::kSum), CollectiveMismatch);
    const Recording recording = recording_of(group, group.rank);
    ASSERT_EQ(recording.calls.size(), 1u);
    EXPECT_TRUE(recording.calls[0].failed);
  });
}

TEST(CallLog, ShowsWhereAKilledRankWas) {
  run_ranks(2,
            [](const JobGroup& group) {
              Communicator communicator(group);
              communicator.barrier();
              if (group.rank == 1) {
                const Request begun = communicator.start(CollectiveCall::barrier());
                raise(SIGKILL);
              }
              while (process_slot(*group.memory, group.process_slots[1]).is_alive()) sched_yield();
              const Recording recording = recording_of(group, 1);
              ASSERT_EQ(recording.calls.size(), 2u);
              EXPECT_EQ(recording.calls[1].ended_ns, 0u);
              EXPECT_EQ(recording.calls[1].sequence, 2u);
            },
            {.killed = {1}});
}

TEST(CallLog, IsOfAllCommunicatorsOfTheProcess) {
  run_ranks(2, [](const JobGroup& group) {
    JobGroup second = group;
    second.name += "/second";
    {
      Communicator a(group);
      Communicator b(second);
      for (int i = 0; i < 2; ++i) {
        a.barrier();
        b.barrier();
      }
    }
    const Recording recording = recording_of(group, group.rank);  // Also when they are gone.
    ASSERT_EQ(recording.calls.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(recording.group_of(recording.calls[i]).name, i % 2 == 0 ? group.name : second.name);
      EXPECT_EQ(recording.calls[i].sequence, i / 2 + 1);
    }
  });
}

}  // namespace
}  // namespace retinue::test
