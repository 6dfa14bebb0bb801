#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"

/// Whether ranks that should hold the same data do: replicas of a model whose ranks drew different random numbers, read
/// different files or left out an all_reduce train on, and become worse without a word.
namespace retinue {

/// Some data under a name, as a weight of a model.
struct NamedBytes {
  std::string_view name = {};
  ConstBytes bytes = {};
};

/// What is compared of data. Of two of one length that differ in one word it is never the same.
std::uint64_t hash_of(ConstBytes bytes);

/// Compares hashes of the parts, in their order, over all ranks of the group.
///
/// Blocking: as an all_gather of a few bytes where all is the same; all ranks call it, in order with their other calls.
/// Errors: DataDivergence, a CollectiveMismatch, on all ranks, which names the first part that differs and the ranks
/// where it does, or parts of other names or sizes; those of the collectives. After an error: of the first kind the
/// group can be used on. Cost: reads all bytes once, at some bytes a cycle. Bits are compared: of floating point 0 and
/// -0 differ.
void check_same(Communicator& group, std::span<const NamedBytes> parts, CallSite site = {});
void check_same(Communicator& group, std::string_view name, ConstBytes bytes, CallSite site = {});
template <typename T>
void check_same(Communicator& group, std::string_view name, std::span<T> data, CallSite site = {}) {
  static_assert(std::is_trivially_copyable_v<T>, "what is compared are the data's bytes");
  check_same(group, name, ConstBytes(std::as_bytes(data)), site);
}

struct DivergenceOptions {
  std::uint64_t every_n_steps = 100;  ///< The first, and each n-th after it.
};

/// Which of a loop's steps are compared. Errors: UsageError for 0 steps.
class DivergenceSteps {
 public:
  explicit DivergenceSteps(const DivergenceOptions& options);

  /// Counts a step.
  bool is_next_due() { return steps_++ % every_n_steps_ == 0; }

 private:
  std::uint64_t every_n_steps_;
  std::uint64_t steps_ = 0;
};

/// The same in every n-th of a loop's steps, the first included, where all ranks do the same number of steps.
///
/// Threads, blocking, errors: as check_same().
class DivergenceCheck {
 public:
  /// The group must outlive this. Errors: UsageError for 0 steps.
  explicit DivergenceCheck(Communicator& group, DivergenceOptions options = {});

  /// Returns whether this step compared.
  bool step(std::span<const NamedBytes> parts, CallSite site = {});

 private:
  Communicator& group_;
  DivergenceSteps steps_;
};

}  // namespace retinue
