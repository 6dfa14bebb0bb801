#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"

/// Checks that ranks which should hold the same data do. Replicas of a model whose ranks drew different random numbers,
/// read different files or left out an all_reduce continue to train, and become worse without an error.
namespace retinue {

/// Named data, such as a weight of a model.
struct NamedBytes {
  std::string_view name = {};
  ConstBytes bytes = {};
};

/// Returns the hash by which data are compared. Data of the same length that differ in one word always have different
/// hashes.
std::uint64_t hash_of(ConstBytes bytes);

/// Compares hashes of the parts, in their order, over all ranks of the group.
///
/// Blocking: as an all_gather of a few bytes if all data are the same. All ranks call it, in order with their other
/// calls.
/// Errors: DataDivergence, a CollectiveMismatch, on all ranks. It names the first part that differs and the ranks where
/// it does, or parts whose names or sizes differ. Also the errors of the collectives. After an error: the group is
/// still usable after DataDivergence. Cost: reads all bytes once, at some bytes per cycle. Bits are compared: as
/// floating point, 0 and -0 differ.
void check_same(Communicator& group, std::span<const NamedBytes> parts, CallSite site = {});
void check_same(Communicator& group, std::string_view name, ConstBytes bytes, CallSite site = {});
template <typename T>
void check_same(Communicator& group, std::string_view name, std::span<T> data, CallSite site = {}) {
  static_assert(std::is_trivially_copyable_v<T>, "check_same compares bytes, so the values must be trivially copyable");
  check_same(group, name, ConstBytes(std::as_bytes(data)), site);
}

struct DivergenceOptions {
  std::uint64_t every_n_steps = 100;  ///< The first step and each n-th one after it are compared.
};

/// A counter that selects the steps of a loop to compare. Errors: UsageError for 0 steps.
class DivergenceSteps {
 public:
  explicit DivergenceSteps(const DivergenceOptions& options);

  /// Counts a step. Returns whether to compare it.
  bool is_next_due() { return steps_++ % every_n_steps_ == 0; }

 private:
  std::uint64_t every_n_steps_;
  std::uint64_t steps_ = 0;
};

/// A check_same() in every n-th step of a loop, the first step included. All ranks must do the same number of steps.
///
/// Threads, blocking, errors: as check_same().
class DivergenceCheck {
 public:
  /// Makes a check. The group must outlive it. Errors: UsageError for 0 steps.
  explicit DivergenceCheck(Communicator& group, DivergenceOptions options = {});

  /// Returns whether this step compared.
  bool step(std::span<const NamedBytes> parts, CallSite site = {});

 private:
  Communicator& group_;
  DivergenceSteps steps_;
};

}  // namespace retinue
