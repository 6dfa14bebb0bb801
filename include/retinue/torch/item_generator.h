#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace retinue {

/// The random numbers of one item of a data set in one epoch. They depend on the three numbers that it is made of, and
/// on nothing else: not on the worker that loads the item, nor on the batch that the item is in.
///
/// It is a generator for <random>. For LibTorch's random functions make a generator of its first number:
/// at::make_generator<at::CPUGeneratorImpl>(generator()).
/// Source: SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
class ItemGenerator {
 public:
  using result_type = std::uint64_t;

  explicit constexpr ItemGenerator(std::uint64_t seed, std::int64_t epoch = 0, std::size_t index = 0)
      : state_(mixed(mixed(mixed(seed) ^ static_cast<std::uint64_t>(epoch)) ^ index)) {}

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }

  constexpr result_type operator()() {
    state_ += kStep;
    return finished(state_);
  }

  /// Returns a number in [0, 1).
  constexpr double uniform() {
    constexpr double kUnit = 0x1p-53;
    return static_cast<double>((*this)() >> 11u) * kUnit;
  }

  /// Returns a number in [0, bound); 0 for a bound of 0.
  constexpr std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>(((*this)() >> 32u) * bound >> 32u);
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15u;

  static constexpr std::uint64_t finished(std::uint64_t bits) {
    bits = (bits ^ bits >> 30u) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27u) * 0x94d049bb133111ebu;
    return bits ^ bits >> 31u;
  }
  static constexpr std::uint64_t mixed(std::uint64_t bits) { return finished(bits + kStep); }

  std::uint64_t state_;
};

}  // namespace retinue
