#include "collective/kernels.h"

#include <gtest/gtest.h>

#include "collective/reduction_check.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

std::vector<const KernelTable*> runnable_tables() {
  std::vector<const KernelTable*> tables{&portable_kernels()};
  if (cpu_has_avx2_kernels()) tables.push_back(&avx2_kernels());
  if (cpu_has_avx512_kernels()) tables.push_back(&avx512_kernels());
  return tables;
}

/// Reduces `inputs` with each table, also into two destinations, and compares with the serial loop.
template <typename T>
void check_kernels(ReduceOp op, const std::vector<std::vector<T>>& inputs) {
  const std::size_t count = inputs[0].size();
  std::vector<const void*> sources;
  for (const auto& input : inputs) sources.push_back(input.data());
  for (const KernelTable* table : runnable_tables()) {
    std::vector<T> first(count);
    std::vector<T> second(count);
    void* destinations[] = {first.data(), second.data()};
    table->get(DtypeOf<T>::value, op)({sources.data(), static_cast<int>(sources.size())}, {destinations, 2}, count);
    std::vector<T> by_rank(inputs.size());
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t k = 0; k < inputs.size(); ++k) by_rank[k] = inputs[k][i];
      const T expected = reference(op, by_rank);
      ASSERT_TRUE(same(first[i], expected) && same(second[i], expected))
          << name_of(DtypeOf<T>::value) << " " << name_of(op) << " of " << inputs.size() << " at " << i << " of "
          << count << ", table " << (table == &portable_kernels() ? "portable" : "vector");
    }
  }
}

/// Values where conversions and comparisons go wrong first.
template <typename T>
std::vector<T> hard_values() {
  std::vector<T> values;
  if constexpr (kIsSmall<T>) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) values.push_back(T{static_cast<std::uint16_t>(bits)});
  } else {
    using Limits = std::numeric_limits<T>;
    values = {T(0), T(1), Limits::max(), Limits::lowest(), Limits::min(), T(-1), T(2), T(3)};
    if constexpr (kIsFloating<T>)
      for (const T value : {-T(0), Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), Limits::denorm_min(),
                            -Limits::denorm_min(), Limits::epsilon()})
        values.push_back(value);
  }
  return values;
}

TEST(Kernels, AgreeWithTheSerialLoopOnAllTypes) {
  std::uint64_t seed = 0;
  for_each_type([&]<typename T>(T) {
    for (const ReduceOp op : kOps)
      for (const int sources : {1, 2, 3, 9})
        for (const std::size_t count : {0, 1, 7, 15, 16, 31, 33, 64, 129, 255, 300}) {
          std::vector<std::vector<T>> inputs(static_cast<std::size_t>(sources));
          ++seed;
          for (int k = 0; k < sources; ++k)
            for (std::size_t i = 0; i < count; ++i)
              inputs[static_cast<std::size_t>(k)].push_back(element<T>(seed, k, i));
          check_kernels<T>(op, inputs);
        }
  });
}

TEST(Kernels, AgreeWithTheSerialLoopOnHardValues) {
  constexpr std::size_t kShiftOfSmall = is_sanitized() ? 40009 : 9973;
  for_each_type([&]<typename T>(T) {
    const std::vector<T> values = hard_values<T>();
    for (const ReduceOp op : kOps)
      for (std::size_t shift = 0; shift < values.size(); shift += kIsSmall<T> ? kShiftOfSmall : 1) {
        std::vector<T> shifted(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) shifted[i] = values[(i + shift) % values.size()];
        check_kernels<T>(op, {values, shifted});
      }
  });
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
