#include "collective/kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>
#include <string_view>
#include <vector>

#include "collective/elements.h"
#include "collective/pairs.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

std::vector<const KernelTable*> runnable_tables() {
  std::vector<const KernelTable*> tables{&portable_kernels()};
  if (cpu_has_avx2_kernels()) tables.push_back(&avx2_kernels());
  if (cpu_has_avx512_kernels()) tables.push_back(&avx512_kernels());
  return tables;
}

/// Elements in memory of any alignment, with bytes behind them that nobody may write.
template <typename T>
class Placed {
 public:
  Placed(std::size_t count, std::size_t shift) : count_(count), shift_(shift), bytes_(shift + count * sizeof(T)) {
    bytes_.resize(bytes_.size() + kGuard, std::byte{0x5a});
  }
  Placed(const std::vector<T>& values, std::size_t shift) : Placed(values.size(), shift) {
    if (count_ > 0) std::memcpy(data(), values.data(), count_ * sizeof(T));
  }
  void* data() { return bytes_.data() + shift_; }
  const void* data() const { return bytes_.data() + shift_; }
  T at(std::size_t i) const {
    T value;
    std::memcpy(static_cast<void*>(&value), bytes_.data() + shift_ + i * sizeof(T), sizeof value);
    return value;
  }
  bool is_guard_intact() const {
    return std::all_of(bytes_.end() - kGuard, bytes_.end(), [](std::byte b) { return b == std::byte{0x5a}; });
  }

 private:
  static constexpr int kGuard = 64;
  std::size_t count_;
  std::size_t shift_;
  std::vector<std::byte> bytes_;
};

enum class Into { kTwoOthers, kAllSources };

/// Reduces `inputs` with each table into two destinations or in place, and compares with the serial loop. Arrays begin
/// at an aligned address, or with a `shift` each source a byte further behind one than the source before.
template <typename T>
void check_kernels(ReduceOp op, const std::vector<std::vector<T>>& inputs, std::size_t shift = 0,
                   Into into = Into::kTwoOthers) {
  const std::size_t count = inputs[0].size();
  std::vector<double> factors;
  for (std::size_t k = 0; k < inputs.size(); ++k) factors.push_back(factor_of_rank(static_cast<int>(k)));
  const std::vector<T> expected = reduced(op, inputs);
  for (const KernelTable* table : runnable_tables()) {
    std::vector<Placed<T>> arrays;
    std::vector<const void*> sources;
    for (std::size_t k = 0; k < inputs.size(); ++k) arrays.emplace_back(inputs[k], shift == 0 ? 0 : shift + k);
    for (Placed<T>& array : arrays) sources.push_back(array.data());
    std::vector<Placed<T>> others(into == Into::kTwoOthers ? 2 : 0, Placed<T>(count, shift));
    std::vector<Placed<T>>& results = into == Into::kTwoOthers ? others : arrays;
    std::vector<void*> destinations;
    for (Placed<T>& result : results) destinations.push_back(result.data());
    table->get(DtypeOf<T>::value, op)({sources.data(), static_cast<int>(sources.size()), factors.data()},
                                      {destinations.data(), static_cast<int>(destinations.size())}, count);
    for (const Placed<T>& result : results) {
      ASSERT_TRUE(result.is_guard_intact());
      if (count_wrong<T>(static_cast<const std::byte*>(result.data()), expected) == 0) continue;
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_TRUE(same(result.at(i), expected[i]))
            << name_of(DtypeOf<T>::value) << " " << name_of(op) << " of " << inputs.size() << " at " << i << " of "
            << count << ", table " << (table == &portable_kernels() ? "portable" : "vector");
    }
  }
}

template <typename T>
std::vector<std::vector<T>> random_inputs(std::uint64_t seed, int sources, std::size_t count) {
  std::vector<std::vector<T>> inputs;
  for (int k = 0; k < sources; ++k) inputs.push_back(elements<T>(seed, k, 0, count));
  return inputs;
}

TEST(Kernels, AgreeWithTheSerialLoopOnAllTypes) {
  std::uint64_t seed = 0;
  for_each_pair([&]<typename T>(ReduceOp op) {
    for (const int sources : {1, 2, 3, 4, 5, 6, 7, 8, 9})
      for (const std::size_t count : {0, 1, 7, 15, 16, 31, 33, 64, 129, 255, 300})
        check_kernels<T>(op, random_inputs<T>(++seed, sources, count));
  });
}

TEST(Kernels, AgreeWithTheSerialLoopOnLongArrays) {
  for_each_pair([&]<typename T>(ReduceOp op) { check_kernels<T>(op, random_inputs<T>(77, 3, 10'007)); });
}

TEST(Kernels, NeedNoAlignmentAndReduceInPlace) {
  std::uint64_t seed = 1000;
  for_each_pair([&]<typename T>(ReduceOp op) {
    for (const Into into : {Into::kTwoOthers, Into::kAllSources})
      for (const std::size_t count : {1, 7, 33, 300}) check_kernels<T>(op, random_inputs<T>(++seed, 3, count), 1, into);
  });
}

TEST(Kernels, AgreeWithTheSerialLoopOnHardValues) {
  constexpr std::size_t kShiftOfSmall = is_sanitized() ? 40009 : 9973;
  constexpr std::size_t kShiftOfPairs = is_sanitized() ? 17 : 1;
  for_each_pair([&]<typename T>(ReduceOp op) {
    const std::vector<T> values = hard_values<T>();
    const std::size_t step = kIsSmall<T> ? kShiftOfSmall : kIsComplex<T> || kIsBool<T> ? kShiftOfPairs : 1;
    for (std::size_t shift = 0; shift < values.size(); shift += step) {
      std::vector<T> shifted(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) shifted[i] = values[(i + shift) % values.size()];
      check_kernels<T>(op, {values, shifted});
    }
  });
}

TEST(Kernels, AreThereForAllPairsThatAreDefinedAndForNoOther) {
  bool is_tested[kDtypes][kReduceOps] = {};
  for_each_pair(
      [&]<typename T>(ReduceOp op) { is_tested[static_cast<int>(DtypeOf<T>::value)][static_cast<int>(op)] = true; });
  for (int d = 0; d < kDtypes; ++d)
    for (int o = 0; o < kReduceOps; ++o) {
      const auto dtype = static_cast<Dtype>(d);
      const auto op = static_cast<ReduceOp>(o);
      EXPECT_EQ(is_defined(op, dtype), is_tested[d][o]) << name_of(op) << " of " << name_of(dtype);
      for (const KernelTable* table : runnable_tables())
        EXPECT_EQ(table->get(dtype, op) != nullptr, is_tested[d][o]) << name_of(op) << " of " << name_of(dtype);
    }
}

TEST(Types, HaveNamesAndSizes) {
  std::set<std::string_view> names;
  for_each_pair([&]<typename T>(ReduceOp op) {
    EXPECT_EQ(size_of(DtypeOf<T>::value), sizeof(T));
    names.insert(name_of(DtypeOf<T>::value));
    names.insert(name_of(op));
  });
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kDtypes + kReduceOps));
  EXPECT_EQ(name_of(DtypeOf<bool>::value), "bool");
  EXPECT_EQ(size_of(DtypeOf<bool>::value), sizeof(bool));
}

TEST(Types, HaveNothingDefinedOutsideOfTheirNumbers) {
  EXPECT_FALSE(is_defined(ReduceOp::kSum, static_cast<Dtype>(kDtypes)));
  EXPECT_FALSE(is_defined(ReduceOp::kSum, static_cast<Dtype>(255)));
  EXPECT_FALSE(is_defined(static_cast<ReduceOp>(kReduceOps), Dtype::kInt8));
  EXPECT_FALSE(is_defined(static_cast<ReduceOp>(255), Dtype::kInt8));
}

TEST(Kernels, CopyWhatTheyAreGiven) {
  for (const std::size_t bytes : {0, 1, 7, 8, 63, 64, 65, 1000, 4099}) {
    std::vector<unsigned char> from(bytes + 3);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 31 + 1);
    alignas(64) unsigned char to[4200];
    std::memset(to, 0, sizeof to);
    copy_bytes(to, from.data() + 3, bytes);
    EXPECT_EQ(std::memcmp(to, from.data() + 3, bytes), 0) << bytes;
    EXPECT_EQ(to[bytes], 0);
    for (const KernelTable* table : runnable_tables()) {
      std::memset(to, 0, sizeof to);
      table->stream(to, from.data() + 3, bytes / 64);
      EXPECT_EQ(std::memcmp(to, from.data() + 3, bytes / 64 * 64), 0) << bytes;
      EXPECT_EQ(to[bytes / 64 * 64], 0);
    }
  }
}

}  // namespace
}  // namespace retinue::test
