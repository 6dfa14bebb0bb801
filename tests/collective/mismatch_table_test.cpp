// Each kind of mismatch with each collective: every rank learns it, in the same words.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "collective/exchange_model.h"
#include "collective/mismatch_text.h"
#include "retinue/collective/communicator.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

constexpr int kOdd = 1;
const CallSite kOurSite{"ours.cpp", 11};
const CallSite kOddSite{"odd.cpp", 22};

float larger(float a, float b) {
  return a < b ? b : a;
}
float smaller(float a, float b) {
  return a < b ? a : b;
}

/// One call as the table has it; what it does to the data doesn't matter.
struct Entry {
  CollectiveKind kind;
  Dtype dtype = Dtype::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count = 4;  ///< Elements.
  int root = 0;
  const ReduceFunction* function = nullptr;
};

constexpr CollectiveKind kAllKinds[] = {
    CollectiveKind::kBarrier,  CollectiveKind::kAllReduce, CollectiveKind::kAllReduceCoalesced,
    CollectiveKind::kReduce,   CollectiveKind::kBroadcast, CollectiveKind::kAllGather,
    CollectiveKind::kGather,   CollectiveKind::kScatter,   CollectiveKind::kReduceScatter,
    CollectiveKind::kAllToAll, CollectiveKind::kScan};

bool reduces_at_all(CollectiveKind kind) {
  return reduces(kind) || kind == CollectiveKind::kAllReduceCoalesced;
}

std::string text_of(const Entry& entry) {
  std::string name(name_of(entry.kind));
  if (entry.kind == CollectiveKind::kBarrier) return name;
  std::string data = fmt::format("{}, {} bytes", name_of(entry.dtype), entry.count * size_of(entry.dtype));
  if (entry.function != nullptr)
    data = fmt::format("elements of {} bytes, {}, {}", entry.function->element_bytes(), entry.count,
                       entry.function->name());
  else if (reduces_at_all(entry.kind))
    data = fmt::format("{}, {}, {}", name_of(entry.dtype), entry.count, name_of(entry.op));
  return fmt::format("{}({}{})", name, data, has_root(entry.kind) ? fmt::format(", root {}", entry.root) : "");
}

/// Buffers that are large enough for all entries and ranks.
struct Buffers {
  alignas(16) std::array<std::byte, 4096> input{};
  alignas(16) std::array<std::byte, 4096> output{};
};

void make(Communicator& group, const Entry& entry, const CallSite& site) {
  Buffers buffers;
  const bool in_place = entry.kind == CollectiveKind::kAllReduce || entry.kind == CollectiveKind::kBroadcast;
  const Bytes list[] = {{buffers.output.data(), entry.count * size_of(entry.dtype)}};
  CollectiveCall call{.kind = entry.kind,
                      .dtype = entry.dtype,
                      .op = entry.function != nullptr ? ReduceOp::kFunction : entry.op,
                      .root = entry.root,
                      .function = entry.function,
                      .count = entry.count * (reduces_at_all(entry.kind) ? 1 : size_of(entry.dtype)),
                      .input = in_place ? buffers.output.data() : buffers.input.data(),
                      .output = buffers.output.data()};
  if (entry.kind == CollectiveKind::kAllReduceCoalesced) call.outputs = list;
  group.run(call, site);
}

/// A call with a root, or a scan, needs not everybody's line, so the first that notices may name one that had not come
/// yet.
bool needs_few(CollectiveKind kind) {
  return has_root(kind) || kind == CollectiveKind::kScan;
}

class MismatchTable : public testing::TestWithParam<int> {
 protected:
  /// Rank 1 makes the call `odd`, all others `ours`. `preface`: what the message begins with, behind the group's name.
  static void check(const JobGroup& group, const Entry& ours, const Entry& odd,
                    const std::string& preface = "the ranks made different calls (the 2nd of each): ") {
    SCOPED_TRACE(text_of(ours) + " against " + text_of(odd));
    Communicator communicator(group);
    communicator.barrier();
    const bool is_odd = group.rank == kOdd;
    std::string message;
    try {
      make(communicator, is_odd ? odd : ours, is_odd ? kOddSite : kOurSite);
      communicator.barrier();
      ADD_FAILURE() << "the calls went together";
    } catch (const CollectiveMismatch& error) {
      message = error.what();
    }
    const bool may_miss_some = needs_few(ours.kind) || needs_few(odd.kind);
    const std::string begin = fmt::format("group \"test group\": {}", preface);
    EXPECT_EQ(message.substr(0, begin.size()), begin);
    for (int rank = 0; rank < communicator.size(); ++rank) {
      const std::string wanted = rank == kOdd ? text_of(odd) + " at odd.cpp:22" : text_of(ours) + " at ours.cpp:11";
      const std::string piece = call_of_rank(message, rank);
      if (may_miss_some && piece == "nothing") continue;
      EXPECT_EQ(piece, wanted) << message;
    }
    EXPECT_NE(message.find("ours.cpp:11"), std::string::npos) << message;
    EXPECT_NE(message.find("odd.cpp:22"), std::string::npos) << message;
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, MismatchTable, testing::Values(2, 3, 8));

TEST_P(MismatchTable, OfEachCollectiveAgainstEachOther) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    for (const CollectiveKind ours : kAllKinds)
      for (const CollectiveKind odd : kAllKinds)
        if (ours != odd) check(group, {.kind = ours}, {.kind = odd});
  });
}

TEST_P(MismatchTable, OfTypes) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    for (const CollectiveKind kind : kAllKinds)
      if (kind != CollectiveKind::kBarrier)
        for (const Dtype odd : {Dtype::kInt32, Dtype::kFloat64, Dtype::kBFloat16})
          check(group, {.kind = kind}, {.kind = kind, .dtype = odd});
  });
}

TEST_P(MismatchTable, OfReductions) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    for (const CollectiveKind kind : kAllKinds)
      if (reduces_at_all(kind))
        for (const ReduceOp odd : {ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kPremulSum})
          check(group, {.kind = kind}, {.kind = kind, .op = odd});
  });
}

TEST_P(MismatchTable, OfCounts) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    for (const CollectiveKind kind : kAllKinds) {
      if (kind == CollectiveKind::kBarrier) continue;
      const bool lists = kind == CollectiveKind::kAllReduceCoalesced;
      for (const std::size_t odd : {std::size_t{0}, std::size_t{5}, std::size_t{40}})
        check(group, {.kind = kind}, {.kind = kind, .count = odd},
              lists ? fmt::format("buffer 0 has 16 bytes on rank 0 and {} on rank 1 (the 2nd call of each): ",
                                  odd * sizeof(float))
                    : "the ranks made different calls (the 2nd of each): ");
    }
  });
}

TEST_P(MismatchTable, OfRoots) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    for (const CollectiveKind kind : kAllKinds)
      if (has_root(kind))
        for (const int odd : {kOdd, static_cast<int>(group.process_slots.size()) - 1})
          check(group, {.kind = kind}, {.kind = kind, .root = odd});
  });
}

TEST_P(MismatchTable, OfAFunctionAgainstABuiltInReductionAndAnotherFunction) {
  const ReduceFunction& ours = reduce_function<larger, float>();
  run_ranks(GetParam(), [&](const JobGroup& group) {
    for (const CollectiveKind kind : kDataKinds) {
      if (!reduces(kind)) continue;
      check(group, {.kind = kind, .function = &ours}, {.kind = kind, .op = ReduceOp::kMax});
      check(group, {.kind = kind}, {.kind = kind, .function = &ours});
      check(group, {.kind = kind, .function = &ours}, {.kind = kind, .function = &reduce_function<smaller, float>()});
    }
  });
}

/// Rank 1 gives 5 bytes where all others expect 4 of it.
CollectiveCall uneven_call(CollectiveKind kind, const JobGroup& group, Buffers& buffers,
                           std::vector<ConstBytes>& inputs, std::vector<Bytes>& outputs) {
  const std::size_t size = group.process_slots.size();
  const std::size_t given = group.rank == kOdd ? 5 : 4;
  for (std::size_t rank = 0; rank < size; ++rank) {
    const bool is_own = static_cast<int>(rank) == group.rank;
    inputs.emplace_back(buffers.input.data() + rank * 8, is_own ? 4 : given);
    outputs.emplace_back(buffers.output.data() + rank * 8, is_own && kind != CollectiveKind::kAllToAll ? given : 4);
  }
  const ConstBytes own{buffers.input.data(), given};
  if (kind == CollectiveKind::kAllGather) return CollectiveCall::all_gather(own, outputs);
  if (kind == CollectiveKind::kGather) return CollectiveCall::gather(own, outputs, 0);
  return CollectiveCall::all_to_all(inputs, outputs);
}

TEST_P(MismatchTable, OfUnevenSizes) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kGather, CollectiveKind::kAllToAll}) {
      SCOPED_TRACE(name_of(kind));
      Communicator communicator(group);
      communicator.barrier();
      Buffers buffers;
      std::vector<ConstBytes> inputs;
      std::vector<Bytes> outputs;
      std::string message;
      try {
        communicator.run(uneven_call(kind, group, buffers, inputs, outputs), group.rank == kOdd ? kOddSite : kOurSite);
        communicator.barrier();
        ADD_FAILURE() << "the sizes went together";
      } catch (const CollectiveMismatch& error) {
        message = error.what();
      }
      EXPECT_NE(message.find(" expects 4 bytes from rank 1, which sends 5 (the 2nd call of each): "), std::string::npos)
          << message;
      EXPECT_NE(call_of_rank(message, kOdd).find(" at odd.cpp:22"), std::string::npos) << message;
      EXPECT_NE(message.find(" at ours.cpp:11"), std::string::npos) << message;
    }
  });
}

}  // namespace
}  // namespace retinue::test
