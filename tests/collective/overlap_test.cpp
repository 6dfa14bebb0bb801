// Buffers of one call that overlap, where the result would depend on what is written first.
#include "collective/call/overlap.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "retinue/collective/communicator.h"
#include "support/ranks.h"
#include "support/usage_error.h"

namespace retinue::test {
namespace {

constexpr std::size_t kPart = 8;

/// Lists of parts, one for each rank.
struct CallParts {
  std::vector<ConstBytes> inputs;
  std::vector<Bytes> outputs;
};

struct ListCall {
  std::string name;
  std::function<CollectiveCall(const CallParts&)> make;
};

const std::vector<ListCall>& calls_into_lists() {
  static const std::vector<ListCall> calls{
      {"all_gather", [](const CallParts& parts) { return CollectiveCall::all_gather(parts.inputs[0], parts.outputs); }},
      {"gather", [](const CallParts& parts) { return CollectiveCall::gather(parts.inputs[0], parts.outputs, 1); }},
      {"all_to_all", [](const CallParts& parts) { return CollectiveCall::all_to_all(parts.inputs, parts.outputs); }}};
  return calls;
}

class Overlap : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Overlap, testing::Values(2, 3));

TEST_P(Overlap, OfOutputsIsRefusedOnItsRankAndTheNextTryIsRight) {
  const auto size = static_cast<std::size_t>(GetParam());
  run_ranks(GetParam(), [size](const JobGroup& group) {
    Communicator communicator(group);
    const std::vector<std::byte> given(kPart, static_cast<std::byte>(group.rank + 1));
    std::vector<std::byte> taken(size * kPart);
    CallParts parts{.inputs = std::vector<ConstBytes>(size, given), .outputs = {}};
    for (std::size_t i = 0; i < size; ++i) parts.outputs.push_back(Bytes(taken).subspan(i * kPart, kPart));
    for (const ListCall& call : calls_into_lists()) {
      if (group.rank == 1) {
        const std::string refusal = call.name + ": outputs 0 and 1 overlap; use separate memory for each rank's part";
        CallParts wrong = parts;
        wrong.outputs[0] = wrong.outputs[1];
        EXPECT_EQ(usage_error_of([&] { communicator.run(call.make(wrong)); }), refusal);
        wrong.outputs[0] = Bytes(taken).subspan(kPart / 2, kPart);
        EXPECT_EQ(usage_error_of([&] { communicator.run(call.make(wrong)); }), refusal);
        EXPECT_EQ(usage_error_of([&] { (void)communicator.start(call.make(wrong)); }), refusal);
      }
      std::ranges::fill(taken, std::byte{0});
      communicator.run(call.make(parts));
      for (std::size_t i = 0; i < size; ++i) {
        const bool takes = call.name != "gather" || group.rank == 1;
        EXPECT_EQ(taken[i * kPart], static_cast<std::byte>(takes ? i + 1 : 0)) << call.name << " from " << i;
        EXPECT_EQ(taken[(i + 1) * kPart - 1], static_cast<std::byte>(takes ? i + 1 : 0)) << call.name << " from " << i;
      }
    }
  });
}

TEST_P(Overlap, OfEmptyOutputsIsNone) {
  const auto size = static_cast<std::size_t>(GetParam());
  run_ranks(GetParam(), [size](const JobGroup& group) {
    Communicator communicator(group);
    // Only rank 1 gives anything; the other parts are nothing, all at the same place inside of its part.
    std::vector<std::byte> given(group.rank == 1 ? kPart : 0, std::byte{7});
    std::vector<std::byte> taken(kPart);
    std::vector<Bytes> outputs(size, Bytes(taken).subspan(1, 0));
    outputs[1] = taken;
    communicator.run(CollectiveCall::all_gather(given, outputs));
    EXPECT_EQ(taken, std::vector<std::byte>(kPart, std::byte{7}));
    communicator.run(CollectiveCall::all_to_all(std::vector<ConstBytes>(size), std::vector<Bytes>(size, outputs[0])));
  });
}

TEST_P(Overlap, OfInputAndOutputIsRefusedInLists) {
  const auto size = static_cast<std::size_t>(GetParam());
  run_ranks(GetParam(), [size](const JobGroup& group) {
    Communicator communicator(group);
    std::vector<std::byte> data(2 * size * kPart);
    std::vector<ConstBytes> inputs;
    for (std::size_t i = 0; i < size; ++i) inputs.push_back(ConstBytes(data).subspan(i * kPart, kPart));
    const std::string refusal = ": input and output overlap; only a rank's own part may be in place";
    // Half of the next rank's part.
    const auto next = static_cast<std::size_t>((group.rank + 1) % group.process_slots.size());
    const Bytes output = Bytes(data).subspan(next * kPart + kPart / 2, kPart);
    EXPECT_EQ(usage_error_of([&] { communicator.run(CollectiveCall::scatter(inputs, output, group.rank)); }),
              "scatter" + refusal);
    EXPECT_EQ(usage_error_of([&] {
                communicator.run(
                    CollectiveCall::reduce_scatter(inputs, output.data(), kPart / 4, Dtype::kInt32, ReduceOp::kSum));
              }),
              "reduce_scatter" + refusal);
    communicator.barrier();  // Nothing was sent.
  });
}

TEST(OverlapOfMessages, IsRefusedWhereOneIsReceivedInto) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    std::vector<int> data(8, group.rank);
    const std::span<int> all(data);
    const int peer = 1 - group.rank;
    EXPECT_EQ(usage_error_of([&] { communicator.sendrecv(all.first(4), peer, all.subspan(3, 4), peer); }),
              "sendrecv: the two buffers overlap; use separate buffers to send and to receive");
    const auto batch_error = [&](std::vector<P2POp> batch) {
      return usage_error_of([&] { (void)communicator.batch_isend_irecv(batch); });
    };
    const Bytes bytes = std::as_writable_bytes(all);
    const std::string refusal =
        "batch_isend_irecv: the buffers of messages 0 and 2 overlap, and at least one of them receives; use separate "
        "buffers";
    EXPECT_EQ(batch_error({P2POp::irecv(bytes.first(8), peer), P2POp::isend(bytes.last(8), peer),
                           P2POp::irecv(bytes.subspan(4, 8), peer)}),
              refusal);
    EXPECT_EQ(batch_error({P2POp::isend(bytes, peer), P2POp::isend(bytes.first(4), peer),
                           P2POp::irecv(bytes.subspan(8, 4), peer)}),
              refusal);
    // Two sends of the same data.
    const std::vector<P2POp> batch{P2POp::isend(bytes.first(8), peer, 1), P2POp::isend(bytes.first(8), peer, 2),
                                   P2POp::irecv(bytes.subspan(8, 8), peer, 1), P2POp::irecv(bytes.last(8), peer, 2)};
    for (const Request& request : communicator.batch_isend_irecv(batch)) request.wait();
    EXPECT_EQ(data[2], peer);
    EXPECT_EQ(data[7], peer);
  });
}

TEST(OverlappingPair, IsFoundInAnyOrder) {
  std::vector<std::byte> data(100);
  const auto part = [&](std::size_t begin, std::size_t bytes) { return Bytes(data).subspan(begin, bytes); };
  const auto pair_of = [](const std::vector<Bytes>& buffers) { return overlapping_pair(std::span(buffers)); };
  using Pair = std::pair<std::size_t, std::size_t>;
  EXPECT_EQ(pair_of({}), std::nullopt);
  EXPECT_EQ(pair_of({part(0, 10), part(10, 10), part(20, 80)}), std::nullopt);
  EXPECT_EQ(pair_of({part(20, 80), part(10, 10), part(0, 10)}), std::nullopt);
  EXPECT_EQ(pair_of({part(20, 80), part(25, 0), part(0, 20)}), std::nullopt);
  EXPECT_EQ(pair_of({part(0, 100), part(50, 1), part(60, 1)}), Pair(0, 1));
  EXPECT_EQ(pair_of({part(60, 20), part(0, 10), part(9, 2)}), Pair(1, 2));
  // Reads apart from each other and all before a write that only the first of them reaches.
  EXPECT_EQ(overlapping_pair(std::vector<UsedBuffer>{{part(0, 50), false}, {part(10, 5), false}, {part(40, 5), true}}),
            Pair(0, 2));
}

}  // namespace
}  // namespace retinue::test
