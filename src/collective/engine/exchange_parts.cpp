#include "collective/engine/exchange_parts.h"

#include "collective/kernels/kernels.h"

namespace retinue {
namespace {

std::size_t given_to(const Call& call, int rank) {
  if (!call.gives || (call.pattern.only_root_takes && rank != call.what.root)) return 0;
  return call.input_part(rank).size();
}

std::size_t taken_from(const Call& call, int rank) {
  if (!call.takes || (call.pattern.only_root_gives && rank != call.what.root)) return 0;
  return call.output_part(rank).size();
}

}  // namespace

std::vector<std::uint64_t> part_sizes(const Call& call, int size) {
  std::vector<std::uint64_t> sizes;
  for (int i = 0; i < size; ++i) sizes.push_back(given_to(call, i));
  for (int i = 0; i < size; ++i) sizes.push_back(taken_from(call, i));
  return sizes;
}

void PartExchange::exchange(const Call& call, bool is_uneven) {
  const auto parts = static_cast<std::size_t>(size_);
  if (call.shape.kind != CollectiveKind::kAllGather) {
    if (!call.takes) return all_to_all(call, {});
    if (call.outputs.empty())
      return all_to_all(call,
                        {call.output_part(0).data(), call.part_bytes() * (call.pattern.takes_parts() ? parts : 1)});
    std::size_t bytes = 0;
    for (const Bytes& output : call.outputs) bytes += output.size();
    received_.resize(bytes);
    all_to_all(call, received_);
    const std::byte* from = received_.data();
    for (const Bytes& output : call.outputs) {
      if (output.empty()) continue;
      copy_bytes(output.data(), from, output.size());
      from += output.size();
    }
    return;
  }
  const ConstBytes input = call.input_part(rank_);
  if (!is_uneven) {
    if (!input.empty()) engine_.all_gather(input, {call.output_part(0).data(), input.size() * parts});
    return;
  }
  // Of sizes of their own: one after the other, which needs no space but the outputs'.
  const Bytes own = call.output_part(rank_);
  if (!own.empty() && own.data() != input.data()) copy_bytes(own.data(), input.data(), input.size());
  for (int rank = 0; rank < size_; ++rank)
    if (const Bytes part = call.output_part(rank); !part.empty()) engine_.broadcast(part, rank);
}

std::span<const std::byte> PartExchange::parts_for_this(const Call& call) {
  received_.resize(call.output_part(rank_).size() * static_cast<std::size_t>(size_));
  all_to_all(call, received_);
  return received_;
}

void PartExchange::all_to_all(const Call& call, Bytes output) {
  std::vector<std::size_t> given;
  std::vector<std::size_t> taken;
  for (int rank = 0; rank < size_; ++rank) {
    given.push_back(given_to(call, rank));
    taken.push_back(taken_from(call, rank));
  }
  engine_.all_to_all(call.gives ? whole_input(call) : ConstBytes(), given, output, taken);
}

/// All that this rank gives as one run: a copy where it lies in parts, or under the output.
ConstBytes PartExchange::whole_input(const Call& call) {
  if (!call.pattern.part_per_taker) return call.input_part(rank_);
  const auto parts = static_cast<std::size_t>(size_);
  if (call.inputs.empty() && !call.overwrites_itself) return {call.input_part(0).data(), call.part_bytes() * parts};
  packed_.clear();
  for (int rank = 0; rank < size_; ++rank) {
    const ConstBytes part = call.input_part(rank);
    packed_.insert(packed_.end(), part.begin(), part.end());
  }
  return packed_;
}

}  // namespace retinue
