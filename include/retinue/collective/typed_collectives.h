#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "retinue/collective/call.h"
#include "retinue/collective/reduce_function.h"
#include "retinue/collective/types.h"

namespace retinue {
namespace detail {

/// Errors: UsageError where a buffer of `elements` should hold `wanted`.
void check_elements(std::string_view call, std::size_t elements, std::size_t wanted);

}  // namespace detail

/// Communicator's collectives on spans of elements. Those with `fn` reduce by it, a function of the program that makes
/// one element of two, lower ranks first: reduce_function() says which. Their elements may be of any trivially copyable
/// type, as those of calls that only move data; there, elements of one Dtype don't meet those of another.
template <class Ranks>
class TypedCollectives {
 public:
  template <typename T>
  void all_reduce(std::span<T> data, ReduceOp op = ReduceOp::kSum, CallSite site = {}) {
    run(CollectiveCall::all_reduce(data.data(), data.size(), DtypeOf<T>::value, op), site);
  }
  template <typename T>
  void reduce(std::span<const T> input, std::span<T> output, int root, ReduceOp op = ReduceOp::kSum,
              CallSite site = {}) {
    if (ranks().rank() == root) detail::check_elements("reduce", output.size(), input.size());
    run(CollectiveCall::reduce(input.data(), output.data(), input.size(), DtypeOf<T>::value, op, root), site);
  }
  template <typename T>
  void reduce_scatter(std::span<const T> input, std::span<T> output, ReduceOp op = ReduceOp::kSum, CallSite site = {}) {
    detail::check_elements("reduce_scatter", input.size(), output.size() * parts());
    run(CollectiveCall::reduce_scatter(input.data(), output.data(), output.size(), DtypeOf<T>::value, op), site);
  }
  template <typename T>
  void scan(std::span<const T> input, std::span<T> output, ReduceOp op = ReduceOp::kSum, CallSite site = {}) {
    detail::check_elements("scan", output.size(), input.size());
    run(CollectiveCall::scan(input.data(), output.data(), input.size(), DtypeOf<T>::value, op), site);
  }

  template <auto fn, typename T>
  void all_reduce(std::span<T> data, CallSite site = {}) {
    run(CollectiveCall::all_reduce(data.data(), data.size(), reduce_function<fn, T>()), site);
  }
  template <auto fn, typename T>
  void reduce(std::span<const T> input, std::span<T> output, int root, CallSite site = {}) {
    if (ranks().rank() == root) detail::check_elements("reduce", output.size(), input.size());
    run(CollectiveCall::reduce(input.data(), output.data(), input.size(), reduce_function<fn, T>(), root), site);
  }
  template <auto fn, typename T>
  void reduce_scatter(std::span<const T> input, std::span<T> output, CallSite site = {}) {
    detail::check_elements("reduce_scatter", input.size(), output.size() * parts());
    run(CollectiveCall::reduce_scatter(input.data(), output.data(), output.size(), reduce_function<fn, T>()), site);
  }
  template <auto fn, typename T>
  void scan(std::span<const T> input, std::span<T> output, CallSite site = {}) {
    detail::check_elements("scan", output.size(), input.size());
    run(CollectiveCall::scan(input.data(), output.data(), input.size(), reduce_function<fn, T>()), site);
  }

  template <typename T>
  void broadcast(std::span<T> data, int root, CallSite site = {}) {
    run(CollectiveCall::broadcast(data.data(), data.size_bytes(), root).of(dtype_or_bytes<T>()), site);
  }
  template <typename T>
  void all_gather(std::span<const T> input, std::span<T> output, CallSite site = {}) {
    detail::check_elements("all_gather", output.size(), input.size() * parts());
    run(CollectiveCall::all_gather(input.data(), output.data(), input.size_bytes()).of(dtype_or_bytes<T>()), site);
  }
  template <typename T>
  void gather(std::span<const T> input, std::span<T> output, int root, CallSite site = {}) {
    if (ranks().rank() == root) detail::check_elements("gather", output.size(), input.size() * parts());
    run(CollectiveCall::gather(input.data(), output.data(), input.size_bytes(), root).of(dtype_or_bytes<T>()), site);
  }
  template <typename T>
  void scatter(std::span<const T> input, std::span<T> output, int root, CallSite site = {}) {
    if (ranks().rank() == root) detail::check_elements("scatter", input.size(), output.size() * parts());
    run(CollectiveCall::scatter(input.data(), output.data(), output.size_bytes(), root).of(dtype_or_bytes<T>()), site);
  }
  template <typename T>
  void all_to_all(std::span<const T> input, std::span<T> output, CallSite site = {}) {
    detail::check_elements("all_to_all", output.size(), input.size());
    detail::check_elements("all_to_all", input.size(), input.size() / parts() * parts());
    run(CollectiveCall::all_to_all(input.data(), output.data(), input.size_bytes() / parts()).of(dtype_or_bytes<T>()),
        site);
  }

 protected:
  TypedCollectives() = default;

 private:
  Ranks& ranks() { return static_cast<Ranks&>(*this); }
  void run(const CollectiveCall& call, CallSite site) { ranks().run(call, site); }
  std::size_t parts() { return static_cast<std::size_t>(ranks().size()); }
};

}  // namespace retinue
