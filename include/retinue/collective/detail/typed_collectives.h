#pragma once

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <span>

#include "retinue/collective/call.h"
#include "retinue/collective/detail/elements.h"
#include "retinue/collective/reduce_function.h"
#include "retinue/collective/types.h"

namespace retinue {

/// Communicator's collectives on vectors, arrays, spans and all other contiguous ranges of elements. The functions with
/// `fn` reduce by it, a function of the program that makes one element of two, lower ranks first; see
/// reduce_function(). Their elements may be of any trivially copyable type, as in calls that only move data; in those
/// calls, elements of one Dtype don't meet elements of another.
template <class Ranks>
class TypedCollectives {
 public:
  template <class Data>
  void all_reduce(Data&& data, ReduceOp op = ReduceOp::kSum, CallSite site = {}) {
    if constexpr (detail::can_reduce<Data, Data>()) {
      const std::span all = detail::elements_of(data);
      run(CollectiveCall::all_reduce(all.data(), all.size(), dtype_or_bytes<detail::ElementOf<Data>>(), op), site);
    }
  }
  template <class Input, class Output>
  void reduce(Input&& input, Output&& output, int root, ReduceOp op = ReduceOp::kSum, CallSite site = {}) {
    if constexpr (detail::can_reduce<Input, Output>()) {
      const std::span from = detail::elements_of(input);
      const std::span to = detail::elements_of(output);
      if (ranks().rank() == root) detail::check_elements("reduce", to.size(), from.size());
      run(CollectiveCall::reduce(from.data(), to.data(), from.size(), dtype_or_bytes<detail::ElementOf<Output>>(), op,
                                 root),
          site);
    }
  }
  template <class Input, class Output>
  void reduce_scatter(Input&& input, Output&& output, ReduceOp op = ReduceOp::kSum, CallSite site = {}) {
    if constexpr (detail::can_reduce<Input, Output>()) {
      const std::span from = detail::elements_of(input);
      const std::span to = detail::elements_of(output);
      detail::check_elements("reduce_scatter", from.size(), to.size() * parts());
      run(CollectiveCall::reduce_scatter(from.data(), to.data(), to.size(), dtype_or_bytes<detail::ElementOf<Output>>(),
                                         op),
          site);
    }
  }
  template <class Input, class Output>
  void scan(Input&& input, Output&& output, ReduceOp op = ReduceOp::kSum, CallSite site = {}) {
    if constexpr (detail::can_reduce<Input, Output>()) {
      const std::span from = detail::elements_of(input);
      const std::span to = detail::elements_of(output);
      detail::check_elements("scan", to.size(), from.size());
      run(CollectiveCall::scan(from.data(), to.data(), from.size(), dtype_or_bytes<detail::ElementOf<Output>>(), op),
          site);
    }
  }

  template <auto fn, class Data>
  void all_reduce(Data&& data, CallSite site = {}) {
    if constexpr (detail::can_take<Data>()) {
      const std::span all = detail::elements_of(data);
      run(CollectiveCall::all_reduce(all.data(), all.size(), reduce_function<fn, detail::ElementOf<Data>>()), site);
    }
  }
  template <auto fn, class Input, class Output>
  void reduce(Input&& input, Output&& output, int root, CallSite site = {}) {
    if constexpr (detail::can_move<Input, Output>()) {
      const std::span from = detail::elements_of(input);
      const std::span to = detail::elements_of(output);
      if (ranks().rank() == root) detail::check_elements("reduce", to.size(), from.size());
      run(CollectiveCall::reduce(from.data(), to.data(), from.size(), reduce_function<fn, detail::ElementOf<Output>>(),
                                 root),
          site);
    }
  }
  template <auto fn, class Input, class Output>
  void reduce_scatter(Input&& input, Output&& output, CallSite site = {}) {
    if constexpr (detail::can_move<Input, Output>()) {
      const std::span from = detail::elements_of(input);
      const std::span to = detail::elements_of(output);
      detail::check_elements("reduce_scatter", from.size(), to.size() * parts());
      run(CollectiveCall::reduce_scatter(from.data(), to.data(), to.size(),
                                         reduce_function<fn, detail::ElementOf<Output>>()),
          site);
    }
  }
  template <auto fn, class Input, class Output>
  void scan(Input&& input, Output&& output, CallSite site = {}) {
    if constexpr (detail::can_move<Input, Output>()) {
      const std::span from = detail::elements_of(input);
      const std::span to = detail::elements_of(output);
      detail::check_elements("scan", to.size(), from.size());
      run(CollectiveCall::scan(from.data(), to.data(), from.size(), reduce_function<fn, detail::ElementOf<Output>>()),
          site);
    }
  }

  template <class Data>
  void broadcast(Data&& data, int root, CallSite site = {}) {
    if constexpr (detail::can_take<Data>()) {
      const std::span all = detail::elements_of(data);
      run(typed<Data>(CollectiveCall::broadcast(all.data(), all.size_bytes(), root)), site);
    }
  }
  template <class Input, class Output>
  void all_gather(Input&& input, Output&& output, CallSite site = {}) {
    if constexpr (detail::can_move<Input, Output>()) {
      const std::span from = detail::elements_of(input);
      const std::span to = detail::elements_of(output);
      detail::check_elements("all_gather", to.size(), from.size() * parts());
      run(typed<Output>(CollectiveCall::all_gather(from.data(), to.data(), from.size_bytes())), site);
    }
  }
  template <class Input, class Output>
  void gather(Input&& input, Output&& output, int root, CallSite site = {}) {
    if constexpr (detail::can_move<Input, Output>()) {
      const std::span from = detail::elements_of(input);
      const std::span to = detail::elements_of(output);
      if (ranks().rank() == root) detail::check_elements("gather", to.size(), from.size() * parts());
      run(typed<Output>(CollectiveCall::gather(from.data(), to.data(), from.size_bytes(), root)), site);
    }
  }
  template <class Input, class Output>
  void scatter(Input&& input, Output&& output, int root, CallSite site = {}) {
    if constexpr (detail::can_move<Input, Output>()) {
      const std::span from = detail::elements_of(input);
      const std::span to = detail::elements_of(output);
      if (ranks().rank() == root) detail::check_elements("scatter", from.size(), to.size() * parts());
      run(typed<Output>(CollectiveCall::scatter(from.data(), to.data(), to.size_bytes(), root)), site);
    }
  }
  template <class Input, class Output>
  void all_to_all(Input&& input, Output&& output, CallSite site = {}) {
    if constexpr (detail::can_move<Input, Output>()) {
      const std::span from = detail::elements_of(input);
      const std::span to = detail::elements_of(output);
      detail::check_elements("all_to_all", to.size(), from.size());
      detail::check_elements("all_to_all", from.size(), from.size() / parts() * parts());
      run(typed<Output>(CollectiveCall::all_to_all(from.data(), to.data(), from.size_bytes() / parts())), site);
    }
  }

  // Rejects arguments that are not a range, or not a reduction.
  template <class Data, class Other>
  requires(!std::convertible_to<Other, ReduceOp> &&
           !std::convertible_to<Other, CallSite>) void all_reduce(Data&&, Other&&, ReduceOp = ReduceOp::kSum) {
    static_assert(detail::kNever<Data>,
                  "all_reduce(data, op) reduces a range in place: for a pointer write std::span(pointer, count); a "
                  "function is a template argument, as in all_reduce<fn>(data)");
  }
  template <class T>
  detail::NeedsVariable<T> all_reduce(std::initializer_list<T>, ReduceOp = ReduceOp::kSum) {
    return {};
  }
  template <class T>
  detail::NeedsVariable<T> broadcast(std::initializer_list<T>, int) {
    return {};
  }
  // Rejects calls without a root.
  template <class Data>
  void broadcast(Data&&) {
    static_assert(detail::kNever<Data>, "broadcast needs a root, as in broadcast(data, 0)");
  }
  template <class Input, class Output>
  void scatter(Input&&, Output&&) {
    static_assert(detail::kNever<Input>, "scatter needs a root, as in scatter(input, output, 0)");
  }
  template <class Input, class Output>
  void gather(Input&&, Output&&) {
    static_assert(detail::kNever<Input>, "gather needs a root, as in gather(input, output, 0)");
  }
  template <class Input, class Output>
  void reduce(Input&&, Output&&, ReduceOp = ReduceOp::kSum) {
    static_assert(detail::kNever<Input>, "reduce needs a root, as in reduce(input, output, 0)");
  }
  template <auto fn, class Input, class Output>
  void reduce(Input&&, Output&&) {
    static_assert(detail::kNever<Input>, "reduce needs a root, as in reduce(input, output, 0)");
  }

 protected:
  TypedCollectives() = default;

 private:
  template <class Range>
  static CollectiveCall typed(const CollectiveCall& call) {
    return call.of(dtype_or_bytes<detail::ElementOf<Range>>());
  }
  Ranks& ranks() { return static_cast<Ranks&>(*this); }
  void run(const CollectiveCall& call, CallSite site) { ranks().run(call, site); }
  std::size_t parts() { return static_cast<std::size_t>(ranks().size()); }
};

}  // namespace retinue
