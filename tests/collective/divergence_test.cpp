#include "retinue/collective/divergence.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/ranks.h"
#include "support/usage_error.h"

namespace retinue::test {
namespace {

/// What all ranks must get, where `change` makes rank `odd`'s parts others.
std::string text_of_difference(Communicator& group, std::span<const NamedBytes> parts) {
  std::string text;
  try {
    check_same(group, parts, {"train.cpp", 90});
    ADD_FAILURE() << "nothing differs";
  } catch (const CollectiveMismatch& error) {
    text = error.what();
  }
  group.barrier();  // The group is as good as before.
  return text;
}

class Divergence : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Divergence, testing::Values(1, 2, 3, 8));

TEST_P(Divergence, IsNoneOfTheSameParts) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    Communicator communicator(group);
    for (const std::size_t count : {0u, 1u, 7u, 8u, 100u, 4096u}) {
      const std::vector<float> weight(count, 1.5f);
      const std::vector<char> bias(count, 'x');
      const NamedBytes parts[] = {{"weight", std::as_bytes(std::span(weight))},
                                  {"bias", std::as_bytes(std::span(bias))}};
      check_same(communicator, parts);
      check_same(communicator, "weight", std::span(weight));
      check_same(communicator, std::span<const NamedBytes>());
    }
  });
}

class DivergenceOfMany : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DivergenceOfMany, testing::Values(3, 8));

TEST_P(DivergenceOfMany, NamesThePartAndTheRank) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    Communicator communicator(group);
    const bool is_odd = group.rank == 1;
    std::vector<double> same(100, 2);
    std::vector<double> other(1000, 2);
    if (is_odd) other[999] = 2.0000001;
    const NamedBytes parts[] = {{"first", std::as_bytes(std::span(same))}, {"second", std::as_bytes(std::span(other))}};
    const std::string of = communicator.size() == 3 ? "ranks 0 and 2" : "ranks 0, 2, 3, 4, 5, 6 and 7";
    EXPECT_EQ(
        text_of_difference(communicator, parts),
        "group \"test group\": check_same at train.cpp:90: \"second\" (8000 bytes) of rank 1 differs from that of " +
            of);
  });
}

TEST_P(DivergenceOfMany, NoticesEachByteAndTheirOrder) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    Communicator communicator(group);
    std::vector<unsigned char> data(77);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i);
    const NamedBytes part[] = {{"data", std::as_bytes(std::span(data))}};
    for (std::size_t i = 0; i < data.size(); ++i) {
      if (group.rank == 0) data[i] ^= 1;
      EXPECT_NE(text_of_difference(communicator, part).find("of rank 0 differs"), std::string::npos);
      if (group.rank == 0) data[i] ^= 1;
      if (i + 32 >= data.size()) continue;
      if (group.rank == 0) std::swap(data[i], data[i + 32]);
      EXPECT_NE(text_of_difference(communicator, part).find("of rank 0 differs"), std::string::npos);
      if (group.rank == 0) std::swap(data[i], data[i + 32]);
    }
    check_same(communicator, part);
  });
}

TEST_P(DivergenceOfMany, IsOfNamesSizesAndNumbersToo) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    Communicator communicator(group);
    const bool is_odd = group.rank == 2;
    const std::vector<char> data(10);
    const auto some = [&](std::size_t count) { return std::as_bytes(std::span(data).first(count)); };
    const NamedBytes sizes[] = {{"a", some(10)}, {"b", some(is_odd ? 5 : 4)}};
    EXPECT_NE(text_of_difference(communicator, sizes).find("\"b\" has 5 bytes on rank 2 and 4 on ranks 0"),
              std::string::npos);
    const NamedBytes names[] = {{"a", some(10)}, {is_odd ? "c" : "b", some(4)}};
    EXPECT_NE(text_of_difference(communicator, names).find("part 1 is \"c\" on rank 2 and \"b\" on ranks 0"),
              std::string::npos);
    const NamedBytes three[] = {{"a", some(1)}, {"b", some(1)}, {"c", some(1)}};
    EXPECT_NE(text_of_difference(communicator, std::span(three).first(is_odd ? 2 : 3))
                  .find("part 2 is \"\" on rank 2 and \"c\" on ranks 0"),
              std::string::npos);
  });
}

TEST(DivergenceCheck, ComparesEveryNthStep) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    DivergenceCheck check(communicator, {.every_n_steps = 3});
    int value = 0;
    const NamedBytes part[] = {{"value", std::as_bytes(std::span(&value, 1))}};
    EXPECT_TRUE(check.step(part));
    value = group.rank;
    EXPECT_FALSE(check.step(part));
    EXPECT_FALSE(check.step(part));
    EXPECT_THROW(check.step(part), CollectiveMismatch);
    EXPECT_FALSE(check.step(part));
    const std::string error = usage_error_of([&] { DivergenceCheck(communicator, {.every_n_steps = 0}); });
    EXPECT_NE(error.find("every_n_steps is 0"), std::string::npos) << error;
  });
}

}  // namespace
}  // namespace retinue::test
