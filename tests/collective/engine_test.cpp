#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "collective/exchange_model.h"
#include "collective/thread_engine.h"
#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "retinue/collective/split.h"
#include "support/usage_error.h"

namespace retinue::test {
namespace {

class ByAnEngineOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ByAnEngineOf, testing::Values(1, 2, 3, 5, 8));

TEST_P(ByAnEngineOf, GivesWhatTheModelSays) {
  run_engine_ranks(GetParam(), [](Communicator& group) {
    std::uint64_t seed = 0;
    for (const CollectiveKind kind : kDataKinds)
      for (const std::size_t count : {0, 1, 3, 700, 8191, 8193, 40001})
        for (const bool in_place : {false, true}) {
          ++seed;
          const ExchangeCase c{.kind = kind,
                               .count = count,
                               .input_place = in_place ? Place::kPrivate : Place::kPrivateUnaligned,
                               .in_place = in_place,
                               .root = static_cast<int>(seed % static_cast<std::uint64_t>(group.size())),
                               .seed = seed};
          reduces(kind) ? check_exchange<BFloat16>(group, c) : check_exchange<std::uint8_t>(group, c);
        }
    group.barrier();
  });
}

TEST_P(ByAnEngineOf, ReducesEachTypeWithTheBitsOfTheSerialLoop) {
  run_engine_ranks(GetParam(), [](Communicator& group) {
    std::uint64_t seed = 0;
    for (const CollectiveKind kind : kDataKinds) {
      if (!reduces(kind)) continue;
      for_each_pair([&]<typename T>(ReduceOp op) {
        ++seed;
        for (const std::size_t count : {3, 2001})
          check_exchange<T>(group, {.kind = kind,
                                    .count = count,
                                    .root = static_cast<int>(seed % static_cast<std::uint64_t>(group.size())),
                                    .op = op,
                                    .seed = seed});
      });
    }
  });
}

using Amounts = std::function<std::size_t(int from, int to)>;

/// What rank `from` gives to rank `to`, and where what others give goes: so many numbers that tell both.
class Parts {
 public:
  Parts(const Communicator& group, Amounts amounts) : rank_(group.rank()), amounts_(std::move(amounts)) {
    for (int other = 0; other < group.size(); ++other) {
      given_.emplace_back(amounts_(rank_, other), value(rank_, other));
      taken_.emplace_back(amounts_(other, rank_));
      inputs_.push_back(std::as_bytes(std::span(given_.back())));
      outputs_.push_back(std::as_writable_bytes(std::span(taken_.back())));
    }
  }

  std::span<const ConstBytes> inputs() const { return inputs_; }
  std::span<const Bytes> outputs() const { return outputs_; }
  /// `to`: to whom the givers' numbers were, where that isn't this rank.
  void check(std::string_view call, int to) const {
    for (int from = 0; from < static_cast<int>(taken_.size()); ++from)
      EXPECT_EQ(taken_[static_cast<std::size_t>(from)],
                std::vector<std::int32_t>(amounts_(from, rank_), value(from, to)))
          << call << " from " << from << " to " << to;
  }

  static std::int32_t value(int from, int to) { return from * 100 + to + 1; }

 private:
  int rank_;
  Amounts amounts_;
  std::vector<std::vector<std::int32_t>> given_;
  std::vector<std::vector<std::int32_t>> taken_;
  std::vector<ConstBytes> inputs_;
  std::vector<Bytes> outputs_;
};

std::size_t amount(int from, int to) {
  return (static_cast<std::size_t>(from) * 7 + static_cast<std::size_t>(to) * 3) % 5 * 11;
}

TEST_P(ByAnEngineOf, MovesPartsOfSizesOfTheirOwn) {
  run_engine_ranks(GetParam(), [](Communicator& group) {
    const int rank = group.rank();
    const int root = group.size() - 1;
    const Parts each(group, amount);
    group.run(CollectiveCall::all_to_all(each.inputs(), each.outputs()));
    each.check("all_to_all", rank);
    const Parts of_giver(group, [](int from, int) { return amount(from, 0); });
    group.run(CollectiveCall::all_gather(of_giver.inputs()[0], of_giver.outputs()));
    of_giver.check("all_gather", 0);
    const Parts at_root(group, [&](int from, int) { return amount(from, 0); });
    group.run(CollectiveCall::gather(at_root.inputs()[0], at_root.outputs(), root));
    if (rank == root) at_root.check("gather", 0);
    const Parts of_root(group, amount);
    std::vector<std::int32_t> taken(amount(root, rank));
    group.run(CollectiveCall::scatter(of_root.inputs(), std::as_writable_bytes(std::span(taken)), root));
    EXPECT_EQ(taken, std::vector<std::int32_t>(amount(root, rank), Parts::value(root, rank)));
    const Parts summed(group, [](int, int to) { return amount(0, to); });
    std::vector<std::int32_t> sum(amount(0, rank));
    group.run(CollectiveCall::reduce_scatter(summed.inputs(), sum.data(), sum.size(), Dtype::kInt32, ReduceOp::kSum));
    std::int32_t expected = 0;
    for (int from = 0; from < group.size(); ++from) expected += Parts::value(from, rank);
    EXPECT_EQ(sum, std::vector<std::int32_t>(amount(0, rank), expected));
  });
}

TEST_P(ByAnEngineOf, ReducesManyBuffersInOne) {
  run_engine_ranks(GetParam(), [](Communicator& group) {
    std::vector<std::vector<std::int32_t>> data{{1, 2}, {}, std::vector<std::int32_t>(9000, 5), {7}};
    std::vector<Bytes> buffers;
    for (auto& each : data) buffers.push_back(std::as_writable_bytes(std::span(each)));
    group.run(CollectiveCall::all_reduce_coalesced(buffers, Dtype::kInt32, ReduceOp::kSum));
    const int size = group.size();
    EXPECT_EQ(data[0], (std::vector<std::int32_t>{size, 2 * size}));
    EXPECT_EQ(data[2], std::vector<std::int32_t>(9000, 5 * size));
    EXPECT_EQ(data[3], std::vector<std::int32_t>{7 * size});
  });
}

TEST_P(ByAnEngineOf, ReducesByAFunctionInTheOrderOfRanks) {
  run_engine_ranks(GetParam(), [](Communicator& group) {
    for (const std::size_t count : {3, 20000}) {
      std::vector<std::int64_t> data(count, 10 * (group.rank() + 1));
      const ReduceFunction& minus = reduce_function<std::minus<std::int64_t>{}, std::int64_t>();
      group.run(CollectiveCall::all_reduce(data.data(), data.size(), minus));
      std::int64_t expected = 10;
      for (int rank = 1; rank < group.size(); ++rank) expected -= 10 * (rank + 1);
      EXPECT_EQ(data, std::vector<std::int64_t>(count, expected));
    }
  });
}

std::int64_t sum_that_fears_13(std::int64_t one, std::int64_t other) {
  if (one == 13 || other == 13) throw std::domain_error("thirteen");
  return one + other;
}

TEST(ByAnEngineErrors, OfAFunctionComeToAll) {
  run_engine_ranks(3, [](Communicator& group) {
    // Rank 1 alone reduces the slice that has it.
    std::vector<std::int64_t> data(30000, 1);
    data[15000] = 13;
    const auto reduce = [&] {
      group.run(
          CollectiveCall::all_reduce(data.data(), data.size(), reduce_function<sum_that_fears_13, std::int64_t>()));
    };
    try {
      reduce();
      ADD_FAILURE() << "rank " << group.rank();
    } catch (const std::domain_error&) {
      EXPECT_EQ(group.rank(), 1);
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.ranks(), std::vector<int>{1});
    }
    EXPECT_ANY_THROW(group.barrier());
  });
}

/// All ranks must throw the same, again and again.
void expect_mismatch(int size, const std::function<void(Communicator&)>& call, const std::vector<std::string>& words) {
  std::vector<std::string> texts(static_cast<std::size_t>(size));
  run_engine_ranks(size, [&](Communicator& group) {
    std::string& text = texts[static_cast<std::size_t>(group.rank())];
    for (int i = 0; i < 3; ++i) group.barrier();
    for (int i = 0; i < 2; ++i) try {
        i == 0 ? call(group) : group.barrier();
        ADD_FAILURE() << "the calls went together";
      } catch (const CollectiveMismatch& error) {
        if (i == 0) text = error.what();
        EXPECT_EQ(text, error.what());
      }
  });
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
  for (const std::string& word : words)
    EXPECT_NE(texts[0].find(word), std::string::npos) << word << " in: " << texts[0];
}

TEST(ByAnEngineErrors, NameDifferentCallsOnAllRanks) {
  expect_mismatch(
      3,
      [](Communicator& group) {
        if (group.rank() == 1) return group.run(CollectiveCall::barrier(), {"elsewhere.cpp", 12});
        std::vector<float> own(4);
        group.run(CollectiveCall::all_reduce(own.data(), 4, Dtype::kFloat32, ReduceOp::kSum), {"here.cpp", 34});
      },
      {"\"of threads\"", "the 4th of each", "ranks 0, 2: all_reduce(fp32, 4, sum) at here.cpp:34",
       "rank 1: barrier at elsewhere.cpp:12"});
  expect_mismatch(2,
                  [](Communicator& group) {
                    std::vector<std::byte> own(static_cast<std::size_t>(group.rank() + 4));
                    group.run(CollectiveCall::broadcast(own.data(), own.size(), 0));
                  },
                  {"broadcast(4 bytes, root 0)", "broadcast(5 bytes, root 0)"});
  expect_mismatch(3,
                  [](Communicator& group) {
                    std::vector<std::byte> own(8);
                    const CollectiveCall call = CollectiveCall::broadcast(own.data(), own.size(), 0);
                    constexpr Dtype kTypes[] = {Dtype::kBytes, Dtype::kFloat64, Dtype::kInt64};
                    group.run(call.of(kTypes[group.rank()]));
                  },
                  {"rank 0: broadcast(8 bytes, root 0)", "rank 1: broadcast(fp64, 8 bytes, root 0)",
                   "rank 2: broadcast(int64, 8 bytes, root 0)"});
  expect_mismatch(2,
                  [](Communicator& group) {
                    std::vector<std::int32_t> own(2);
                    const Bytes buffers[] = {std::as_writable_bytes(std::span(own).first(group.rank() == 0 ? 0 : 1)),
                                             std::as_writable_bytes(std::span(own).last(group.rank() == 0 ? 2 : 1))};
                    group.run(CollectiveCall::all_reduce_coalesced(buffers, Dtype::kInt32, ReduceOp::kSum));
                  },
                  {"all_reduce_coalesced"});
}

TEST(ByAnEngineErrors, NamePartsThatDontFit) {
  expect_mismatch(3,
                  [](Communicator& group) {
                    const Parts parts(group, [&](int from, int to) {
                      return std::size_t{group.rank() == 2 && from == 0 && to == 2 ? 3u : 2u};
                    });
                    group.run(CollectiveCall::all_to_all(parts.inputs(), parts.outputs()));
                  },
                  {"rank 2 expects 12 bytes from rank 0, which sends 8"});
}

TEST(ByAnEngineErrors, OfUseAreTheCallersAlone) {
  run_engine_ranks(2, [](Communicator& group) {
    float data = 0;
    EXPECT_NE(usage_error_of([&] { group.run(CollectiveCall::broadcast(&data, sizeof data, 2)); }).find("root 2"),
              std::string::npos);
    group.barrier();
  });
  EXPECT_NE(usage_error_of([] {
              Communicator(nullptr, EngineMembers{.name = "none", .rank = 0, .size = 2});
            }).find("without an engine"),
            std::string::npos);
}

TEST(ByAnEngineErrors, OfAForkAreItsOwn) {
  Communicator alone(std::make_unique<ThreadEngine>(std::make_shared<ThreadEngine::Shared>(1), 0), EngineMembers{});
  const pid_t child = fork();
  if (child == 0) _exit(usage_error_of([&] { alone.barrier(); }).find("is a fork() of rank") == std::string::npos);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  alone.barrier();
}

TEST(ByAnEngineErrors, OfWhatNeedsSharedMemoryNameTheCall) {
  run_engine_ranks(2, [](Communicator& group) {
    EXPECT_FALSE(group.shares_memory());
    EXPECT_TRUE(group.group().memory == nullptr);
    const int data = 0;
    const auto text_of = [&](const auto& call) { return usage_error_of(call); };
    EXPECT_NE(text_of([&] { group.send(std::span(&data, 1), 1 - group.rank()); }).find("send: the ranks of group"),
              std::string::npos);
    EXPECT_NE(text_of([&] { static_cast<void>(group.start(CollectiveCall::barrier())); }).find("barrier: the ranks"),
              std::string::npos);
    EXPECT_NE(text_of([&] { split(group, {.color = 0}); }).find("the ranks of group"), std::string::npos);
    group.barrier();
    group.monitored_barrier();
  });
}

/// Breaks at the third call of it.
class BrokenEngine final : public Engine {
 public:
  void all_gather(ConstBytes input, Bytes output) override {
    if (++calls_ == 3) throw TimeoutError("the cable");
    for (std::size_t i = 0; i < 2; ++i) std::memcpy(output.data() + i * input.size(), input.data(), input.size());
  }
  void all_to_all(ConstBytes, std::span<const std::size_t>, Bytes, std::span<const std::size_t>) override {}
  void broadcast(Bytes, int) override {}
  void set_timeout(std::chrono::nanoseconds) override {}

 private:
  int calls_ = 0;
};

TEST(ByAnEngineErrors, OfTheEngineEndTheGroup) {
  Communicator group(std::make_unique<BrokenEngine>(), {.name = "broken", .rank = 0, .size = 2});
  group.barrier();
  group.barrier();
  for (int i = 0; i < 3; ++i) EXPECT_THROW(group.barrier(), TimeoutError);
}

}  // namespace
}  // namespace retinue::test
