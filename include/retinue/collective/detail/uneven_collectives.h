#pragma once

#include <cstddef>
#include <initializer_list>
#include <ranges>
#include <span>
#include <string_view>
#include <vector>

#include "retinue/collective/call.h"
#include "retinue/collective/detail/elements.h"
#include "retinue/collective/types.h"

namespace retinue {
namespace detail {

/// Return the contiguous parts of a buffer, one for each rank, with `counts` elements.
/// Errors: UsageError if they don't make up the buffer, or their number isn't the number of ranks.
std::vector<ConstBytes> input_parts(std::string_view call, ConstBytes data, std::size_t element_bytes,
                                    const std::vector<std::size_t>& counts, std::size_t ranks);
std::vector<Bytes> output_parts(std::string_view call, Bytes data, std::size_t element_bytes,
                                const std::vector<std::size_t>& counts, std::size_t ranks);

[[noreturn]] void refuse_negative_count(std::string_view call, std::size_t rank);

template <PartCounts Counts>
std::vector<std::size_t> checked_counts(std::string_view call, const Counts& counts) {
  std::vector<std::size_t> all;
  for (const auto count : counts) {
    if (count < 0) refuse_negative_count(call, all.size());
    all.push_back(static_cast<std::size_t>(count));
  }
  return all;
}

}  // namespace detail

/// Communicator's collectives on ranges whose parts differ in size, as MPI's with a `v`. `counts`, a range or a list in
/// braces, gives the number of elements of each rank's part, in rank order; the parts are contiguous. Ranks need not
/// know each other's counts, but the size that one rank gives another must be the size that the other takes: otherwise
/// CollectiveMismatch.
///
/// A rank without parts (in gather, one that isn't the root) may pass any counts and any buffer.
template <class Ranks>
class UnevenCollectives {
 public:
  template <class Input, class Output, detail::PartCounts Counts = detail::CountList>
  void all_gather(Input&& input, Output&& output, const Counts& counts, CallSite site = {}) {
    if constexpr (detail::can_move<Input, Output>()) {
      const auto outputs = takes("all_gather", output, counts);
      run<Output>(CollectiveCall::all_gather(std::as_bytes(detail::elements_of(input)), outputs), site);
    }
  }
  template <class Input, class Output, detail::PartCounts Counts = detail::CountList>
  void gather(Input&& input, Output&& output, const Counts& counts, int root, CallSite site = {}) {
    if constexpr (detail::can_move<Input, Output>()) {
      std::vector<Bytes> outputs;
      if (ranks().rank() == root) outputs = takes("gather", output, counts);
      run<Output>(CollectiveCall::gather(std::as_bytes(detail::elements_of(input)), outputs, root), site);
    }
  }
  template <class Input, detail::PartCounts Counts = detail::CountList, class Output>
  void scatter(Input&& input, const Counts& counts, Output&& output, int root, CallSite site = {}) {
    if constexpr (detail::can_move<Input, Output>()) {
      std::vector<ConstBytes> inputs;
      if (ranks().rank() == root) inputs = gives("scatter", input, counts);
      run<Output>(CollectiveCall::scatter(inputs, std::as_writable_bytes(detail::elements_of(output)), root), site);
    }
  }
  /// `given` is the number of elements of `input` for each rank; `taken` is the number in `output` from each rank.
  template <class Input, detail::PartCounts Given = detail::CountList, class Output,
            detail::PartCounts Taken = detail::CountList>
  void all_to_all(Input&& input, const Given& given, Output&& output, const Taken& taken, CallSite site = {}) {
    if constexpr (detail::can_move<Input, Output>()) {
      const auto inputs = gives("all_to_all", input, given);
      const auto outputs = takes("all_to_all", output, taken);
      run<Output>(CollectiveCall::all_to_all(inputs, outputs), site);
    }
  }
  /// `counts` refers to `input` and is the same on all ranks; the rank's own count is the count of `output`.
  template <class Input, detail::PartCounts Counts = detail::CountList, std::ranges::range Output>
  void reduce_scatter(Input&& input, const Counts& counts, Output&& output, ReduceOp op = ReduceOp::kSum,
                      CallSite site = {}) {
    if constexpr (detail::can_reduce<Input, Output>()) {
      const auto inputs = gives("reduce_scatter", input, counts);
      const std::span to = detail::elements_of(output);
      ranks().run(
          CollectiveCall::reduce_scatter(inputs, to.data(), to.size(), dtype_or_bytes<detail::ElementOf<Output>>(), op),
          site);
    }
  }

  // Rejects counts in another place.
  template <class Input, class Output, detail::PartCounts Counts>
  requires(!detail::PartCounts<Output>) void scatter(Input&&, Output&&, const Counts&, int) {
    static_assert(detail::kNever<Input>,
                  "put the counts after the buffer that they divide: scatter(input, counts, output, 0)");
  }
  // Rejects calls without a root.
  template <class Input, class Output, detail::PartCounts Counts>
  void gather(Input&&, Output&&, const Counts&) {
    static_assert(detail::kNever<Input>, "gather needs a root, as in gather(input, output, counts, 0)");
  }
  template <class Input, detail::PartCounts Counts, std::ranges::range Output>
  void scatter(Input&&, const Counts&, Output&&) {
    static_assert(detail::kNever<Input>, "scatter needs a root, as in scatter(input, counts, output, 0)");
  }

 protected:
  UnevenCollectives() = default;

 private:
  template <class Input, class Counts>
  std::vector<ConstBytes> gives(std::string_view call, Input& input, const Counts& counts) {
    return detail::input_parts(call, std::as_bytes(detail::elements_of(input)), sizeof(detail::ElementOf<Input>),
                               detail::checked_counts(call, counts), static_cast<std::size_t>(ranks().size()));
  }
  template <class Output, class Counts>
  std::vector<Bytes> takes(std::string_view call, Output& output, const Counts& counts) {
    return detail::output_parts(call, std::as_writable_bytes(detail::elements_of(output)),
                                sizeof(detail::ElementOf<Output>), detail::checked_counts(call, counts),
                                static_cast<std::size_t>(ranks().size()));
  }
  template <class Range>
  void run(const CollectiveCall& call, CallSite site) {
    ranks().run(call.of(dtype_or_bytes<detail::ElementOf<Range>>()), site);
  }
  Ranks& ranks() { return static_cast<Ranks&>(*this); }
};

}  // namespace retinue
