#include "collective/call/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "collective/call/overlap.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

template <typename... Arguments>
[[noreturn]] void refuse(CollectiveKind kind, fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  throw UsageError(fmt::format("{}: {}", name_of(kind), fmt::format(text, std::forward<Arguments>(arguments)...)));
}

std::size_t checked_element_bytes(const CollectiveCall& what) {
  if (!is_reduction(what.kind)) {
    if (what.dtype == Dtype::kBytes) return 1;
    if (size_of(what.dtype) == 0) refuse(what.kind, "no such dtype ({})", static_cast<unsigned>(what.dtype));
    if (what.count % size_of(what.dtype) != 0)
      refuse(what.kind, "a part of {} bytes does not consist of whole elements of {}", what.count, name_of(what.dtype));
    return 1;
  }
  if (what.op == ReduceOp::kFunction && what.function == nullptr) refuse(what.kind, "the function is missing");
  if (what.op != ReduceOp::kFunction && what.function != nullptr)
    refuse(what.kind, "it has a function, but its reduction is {}", name_of(what.op));
  if (what.function != nullptr) return what.function->element_bytes();
  if (static_cast<unsigned>(what.dtype) > static_cast<unsigned>(Dtype::kComplex128) ||
      static_cast<unsigned>(what.op) > static_cast<unsigned>(ReduceOp::kLogicalXor))
    refuse(what.kind, "no such dtype ({}) or reduction ({})", static_cast<unsigned>(what.dtype),
           static_cast<unsigned>(what.op));
  if (!is_defined(what.op, what.dtype))
    refuse(what.kind, "{} has no reduction {}", name_of(what.dtype), name_of(what.op));
  return size_of(what.dtype);
}

void check_root(const CollectiveCall& what, const Pattern& pattern, int size) {
  if ((pattern.only_root_gives || pattern.only_root_takes) && (what.root < 0 || what.root >= size))
    refuse(what.kind, "root {} is outside of the group's [0, {})", what.root, size);
}

void check_size(const Call& call, std::size_t size) {
  const bool has_parts = call.pattern.part_per_taker || call.pattern.takes_parts();
  std::ptrdiff_t bytes = 0;
  if (__builtin_mul_overflow(call.count, call.element_bytes * (has_parts ? size : 1), &bytes))
    refuse(call.what.kind, "{} elements of {} bytes for each of {} ranks don't fit in memory", call.count,
           call.element_bytes, size);
}

template <typename List>
void check_list(CollectiveKind kind, const List& list, std::size_t size, const char* name) {
  if (list.size() != size) refuse(kind, "{} {} for a group of {}", list.size(), name, size);
  for (std::size_t i = 0; i < size; ++i)
    if (list[i].data() == nullptr && !list[i].empty()) refuse(kind, "number {} of the {} is null", i, name);
}

void check_buffers(const Call& call, std::size_t size) {
  const CollectiveCall& what = call.what;
  if (call.pattern.result == Pattern::Result::kNothing || what.kind == CollectiveKind::kAllReduceCoalesced) return;
  if (call.gives && what.uneven && call.pattern.part_per_taker) {
    check_list(what.kind, what.inputs, size, "inputs");
    for (const ConstBytes& input : what.inputs)
      if (input.size() % call.element_bytes != 0)
        refuse(what.kind, "an input of {} bytes does not consist of whole elements of {} bytes", input.size(),
               call.element_bytes);
  } else if (call.gives && what.input == nullptr && what.count > 0) {
    refuse(what.kind, "the input is null");
  }
  if (call.takes && what.uneven && call.pattern.takes_parts()) {
    check_list(what.kind, what.outputs, size, "outputs");
    if (const OverlappingPair pair = overlapping_pair(what.outputs))
      refuse(what.kind, "outputs {} and {} overlap; use separate memory for each rank's part", pair->first,
             pair->second);
  } else if (call.takes && what.output == nullptr && what.count > 0) {
    refuse(what.kind, "the output is null");
  }
}

void check_own_part(const Call& call, int rank) {
  const std::size_t given = call.input_part(rank).size();
  const std::size_t taken = call.output_part(rank).size();
  if (given != taken) refuse(call.what.kind, "rank {} sends itself {} bytes but receives {}", rank, given, taken);
}

/// All of this member's buffer as one run; only of even calls.
ConstBytes whole(const void* buffer, const Call& call, bool has_parts, std::size_t size) {
  return {static_cast<const std::byte*>(buffer), call.part_bytes() * (has_parts ? size : 1)};
}

/// From the first byte of some parts to behind the last one.
template <typename PartOf>
ConstBytes range_of(int parts, PartOf part_of) {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  for (int i = 0; i < parts; ++i) {
    const ConstBytes part = part_of(i);
    if (part.empty()) continue;
    if (begin == nullptr || std::less<>()(part.data(), begin)) begin = part.data();
    if (end == nullptr || std::less<>()(end, part.data() + part.size())) end = part.data() + part.size();
  }
  return {begin, end};
}

bool parts_overlap(const Call& call, int rank, int size) {
  const bool gives_parts = call.pattern.part_per_taker;
  const bool takes_parts = call.pattern.takes_parts();
  const ConstBytes inputs = range_of(gives_parts ? size : 1, [&](int i) { return call.input_part(i); });
  const ConstBytes outputs = range_of(takes_parts ? size : 1, [&](int i) { return call.output_part(i); });
  if (!overlap(inputs, outputs)) return false;
  for (int i = 0; i < (gives_parts ? size : 1); ++i)
    for (int k = 0; k < (takes_parts ? size : 1); ++k) {
      const ConstBytes input = call.input_part(i);
      const ConstBytes output = call.output_part(k);
      const bool is_own = (!gives_parts || i == rank) && (!takes_parts || k == rank);
      if (overlap(input, output) && !(is_own && input.data() == output.data())) return true;
    }
  return false;
}

/// Whether input and output overlap so that the result, where it lands, changes what others have yet to read; refuses
/// what can't be done right.
bool overwrites_itself(const Call& call, int rank, int size) {
  const CollectiveCall& what = call.what;
  if (!call.gives || !call.takes || what.kind == CollectiveKind::kAllReduce ||
      what.kind == CollectiveKind::kAllReduceCoalesced || what.kind == CollectiveKind::kBroadcast)
    return false;
  if (!what.uneven) {
    const auto parts = static_cast<std::size_t>(size);
    const ConstBytes input = whole(what.input, call, call.pattern.part_per_taker, parts);
    const ConstBytes output = whole(what.output, call, call.pattern.takes_parts(), parts);
    if (!overlap(input, output)) return false;
    if (input.data() == output.data()) {
      if (what.kind == CollectiveKind::kAllToAll || what.kind == CollectiveKind::kScan) return true;
      if (what.kind == CollectiveKind::kReduce) return false;
    }
  }
  if (parts_overlap(call, rank, size))
    refuse(what.kind, "input and output overlap; only a rank's own part may be in place");
  return false;
}

/// The own part doesn't count: it travels nowhere.
std::size_t largest_part(const Call& call, int rank) {
  if (call.inputs.empty()) return call.count;
  std::size_t largest = 0;
  for (std::size_t i = 0; i < call.inputs.size(); ++i)
    if (i != static_cast<std::size_t>(rank)) largest = std::max(largest, call.inputs[i].size());
  return largest / call.element_bytes;
}

void check_form(const CollectiveCall& what, const Pattern& pattern) {
  if (what.kind < CollectiveKind::kBarrier || what.kind > CollectiveKind::kAllReduceCoalesced)
    throw UsageError(fmt::format("there is no collective number {}", static_cast<unsigned>(what.kind)));
  if (what.uneven && !pattern.takes_parts() && !pattern.part_per_taker) refuse(what.kind, "it has no uneven form");
  const bool is_coalesced = what.kind == CollectiveKind::kAllReduceCoalesced;
  if (is_coalesced && what.function != nullptr) refuse(what.kind, "it does not support reduction functions");
  if (!what.uneven && (!what.inputs.empty() || (!what.outputs.empty() && !is_coalesced)))
    refuse(what.kind, "an even call has no lists of parts");
  const bool is_in_place = what.kind == CollectiveKind::kAllReduce || what.kind == CollectiveKind::kBroadcast;
  if (!is_reduction(what.kind) && (what.function != nullptr || what.op == ReduceOp::kFunction))
    refuse(what.kind, "it is not a reduction and takes no function");
  if (is_in_place && what.input != what.output)
    refuse(what.kind, "it works in place: input and output must be the same buffer");
}

}  // namespace

ConstBytes Call::input_part(int rank) const {
  if (!inputs.empty()) return inputs[static_cast<std::size_t>(rank)];
  const std::size_t begin = pattern.part_per_taker ? static_cast<std::size_t>(rank) * part_bytes() : 0;
  return {static_cast<const std::byte*>(what.input) + begin, part_bytes()};
}

Bytes Call::output_part(int rank) const {
  if (!outputs.empty()) return outputs[static_cast<std::size_t>(rank)];
  const std::size_t begin = pattern.takes_parts() ? static_cast<std::size_t>(rank) * part_bytes() : 0;
  return {static_cast<std::byte*>(what.output) + begin, part_bytes()};
}

UsageError error_in_fork(const std::string& group, int rank, std::string_view advice) {
  return UsageError(fmt::format("group \"{}\": this process is a fork() of rank {} and not a member of the group; {}",
                                group, rank, advice));
}

Call checked_call(const CollectiveCall& what, int rank, int size, CallSite site) {
  Call call(what, site);
  check_form(what, call.pattern);
  call.shape.kind = what.kind;
  if (call.pattern.result == Pattern::Result::kNothing) return call;
  call.element_bytes = checked_element_bytes(what);
  check_root(what, call.pattern, size);
  call.gives = !call.pattern.only_root_gives || rank == what.root;
  call.takes = !call.pattern.only_root_takes || rank == what.root;
  if (what.kind == CollectiveKind::kAllReduceCoalesced) check_coalesced(call);
  check_size(call, static_cast<std::size_t>(size));
  check_buffers(call, static_cast<std::size_t>(size));
  if (what.uneven) {
    if (call.gives && call.pattern.part_per_taker) call.inputs = what.inputs;
    if (call.takes && call.pattern.takes_parts()) call.outputs = what.outputs;
    if (call.gives && call.takes) check_own_part(call, rank);
  }
  call.overwrites_itself = overwrites_itself(call, rank, size);
  const bool only_moves = call.pattern.result == Pattern::Result::kParts;
  call.shape = {.kind = what.kind,
                .dtype = what.dtype,
                .op = only_moves ? ReduceOp::kSum : what.op,
                .root = static_cast<std::uint16_t>(what.root),
                .outer = only_moves ? site.outer : OuterCall::kNone,
                .count = largest_part(call, rank)};
  return call;
}

void check_call(const CollectiveCall& call, int rank, int size) {
  checked_call(call, rank, size, {"", 0});
}

}  // namespace retinue
