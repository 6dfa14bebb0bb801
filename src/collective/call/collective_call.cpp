#include "retinue/collective/call.h"

#include "base/site_text.h"

namespace retinue {
namespace {

CollectiveCall reduced_by(CollectiveCall call, const ReduceFunction& function) {
  call.function = &function;
  return call;
}

}  // namespace

CollectiveCall CollectiveCall::of(Dtype elements) const {
  CollectiveCall call = *this;
  call.dtype = elements;
  return call;
}

CollectiveCall CollectiveCall::premultiplied(double by) const {
  CollectiveCall call = *this;
  call.op = ReduceOp::kPremulSum;
  call.factor = by;
  return call;
}

CollectiveCall CollectiveCall::barrier() {
  return {.kind = CollectiveKind::kBarrier};
}

CollectiveCall CollectiveCall::all_reduce(void* data, std::size_t count, Dtype dtype, ReduceOp op) {
  return {.kind = CollectiveKind::kAllReduce, .dtype = dtype, .op = op, .count = count, .input = data, .output = data};
}

CollectiveCall CollectiveCall::all_reduce_coalesced(std::span<const Bytes> buffers, Dtype dtype, ReduceOp op) {
  return {.kind = CollectiveKind::kAllReduceCoalesced, .dtype = dtype, .op = op, .outputs = buffers};
}

CollectiveCall CollectiveCall::broadcast(void* data, std::size_t bytes, int root) {
  return {.kind = CollectiveKind::kBroadcast, .root = root, .count = bytes, .input = data, .output = data};
}

CollectiveCall CollectiveCall::all_gather(const void* input, void* output, std::size_t bytes) {
  return {.kind = CollectiveKind::kAllGather, .count = bytes, .input = input, .output = output};
}

CollectiveCall CollectiveCall::all_gather(ConstBytes input, std::span<const Bytes> outputs) {
  return {.kind = CollectiveKind::kAllGather,
          .count = input.size(),
          .input = input.data(),
          .outputs = outputs,
          .uneven = true};
}

CollectiveCall CollectiveCall::reduce(const void* input, void* output, std::size_t count, Dtype dtype, ReduceOp op,
                                      int root) {
  return {.kind = CollectiveKind::kReduce,
          .dtype = dtype,
          .op = op,
          .root = root,
          .count = count,
          .input = input,
          .output = output};
}

CollectiveCall CollectiveCall::gather(const void* input, void* output, std::size_t bytes, int root) {
  return {.kind = CollectiveKind::kGather, .root = root, .count = bytes, .input = input, .output = output};
}

CollectiveCall CollectiveCall::gather(ConstBytes input, std::span<const Bytes> outputs, int root) {
  return {.kind = CollectiveKind::kGather,
          .root = root,
          .count = input.size(),
          .input = input.data(),
          .outputs = outputs,
          .uneven = true};
}

CollectiveCall CollectiveCall::scatter(const void* input, void* output, std::size_t bytes, int root) {
  return {.kind = CollectiveKind::kScatter, .root = root, .count = bytes, .input = input, .output = output};
}

CollectiveCall CollectiveCall::scatter(std::span<const ConstBytes> inputs, Bytes output, int root) {
  return {.kind = CollectiveKind::kScatter,
          .root = root,
          .count = output.size(),
          .output = output.data(),
          .inputs = inputs,
          .uneven = true};
}

CollectiveCall CollectiveCall::reduce_scatter(const void* input, void* output, std::size_t count, Dtype dtype,
                                              ReduceOp op) {
  return {.kind = CollectiveKind::kReduceScatter,
          .dtype = dtype,
          .op = op,
          .count = count,
          .input = input,
          .output = output};
}

CollectiveCall CollectiveCall::reduce_scatter(std::span<const ConstBytes> inputs, void* output, std::size_t count,
                                              Dtype dtype, ReduceOp op) {
  return {.kind = CollectiveKind::kReduceScatter,
          .dtype = dtype,
          .op = op,
          .count = count,
          .output = output,
          .inputs = inputs,
          .uneven = true};
}

CollectiveCall CollectiveCall::all_to_all(const void* input, void* output, std::size_t bytes) {
  return {.kind = CollectiveKind::kAllToAll, .count = bytes, .input = input, .output = output};
}

CollectiveCall CollectiveCall::all_to_all(std::span<const ConstBytes> inputs, std::span<const Bytes> outputs) {
  return {.kind = CollectiveKind::kAllToAll, .inputs = inputs, .outputs = outputs, .uneven = true};
}

CollectiveCall CollectiveCall::scan(const void* input, void* output, std::size_t count, Dtype dtype, ReduceOp op) {
  return {.kind = CollectiveKind::kScan, .dtype = dtype, .op = op, .count = count, .input = input, .output = output};
}

CollectiveCall CollectiveCall::all_reduce(void* data, std::size_t count, const ReduceFunction& function) {
  return reduced_by(all_reduce(data, count, Dtype::kUint8, ReduceOp::kFunction), function);
}

CollectiveCall CollectiveCall::reduce(const void* input, void* output, std::size_t count,
                                      const ReduceFunction& function, int root) {
  return reduced_by(reduce(input, output, count, Dtype::kUint8, ReduceOp::kFunction, root), function);
}

CollectiveCall CollectiveCall::reduce_scatter(const void* input, void* output, std::size_t count,
                                              const ReduceFunction& function) {
  return reduced_by(reduce_scatter(input, output, count, Dtype::kUint8, ReduceOp::kFunction), function);
}

CollectiveCall CollectiveCall::reduce_scatter(std::span<const ConstBytes> inputs, void* output, std::size_t count,
                                              const ReduceFunction& function) {
  return reduced_by(reduce_scatter(inputs, output, count, Dtype::kUint8, ReduceOp::kFunction), function);
}

CollectiveCall CollectiveCall::scan(const void* input, void* output, std::size_t count,
                                    const ReduceFunction& function) {
  return reduced_by(scan(input, output, count, Dtype::kUint8, ReduceOp::kFunction), function);
}

std::string CallSite::text() const {
  return site_text(file, line);
}

std::string_view name_of(OuterCall call) {
  switch (call) {
    case OuterCall::kOpening:
      return "the opening of the group";
    case OuterCall::kMonitoredBarrier:
      return "monitored_barrier";
    case OuterCall::kZeroFirst:
      return "ZeroFirst";
    case OuterCall::kCheckSame:
      return "check_same";
    case OuterCall::kBroadcastObject:
      return "broadcast_object";
    case OuterCall::kAllGatherObject:
      return "all_gather_object";
    case OuterCall::kGatherObject:
      return "gather_object";
    case OuterCall::kScatterObject:
      return "scatter_object";
    case OuterCall::kSplit:
      return "split";
    case OuterCall::kSplitGroup:
      return "split_group";
    case OuterCall::kNewGroup:
      return "new_group";
    case OuterCall::kNewSubgroups:
      return "new_subgroups";
    case OuterCall::kNewSubgroupsByEnumeration:
      return "new_subgroups_by_enumeration";
    case OuterCall::kSplitByHost:
      return "split_by_host";
    default:
      return "another call";
  }
}

std::string_view name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kNone:
      return "nothing";
    case CollectiveKind::kOpen:
      return "the opening of the group";
    case CollectiveKind::kBarrier:
      return "barrier";
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduce:
      return "reduce";
    case CollectiveKind::kGather:
      return "gather";
    case CollectiveKind::kScatter:
      return "scatter";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kScan:
      return "scan";
    case CollectiveKind::kAllReduceCoalesced:
      return "all_reduce_coalesced";
  }
  return "unknown collective";
}

}  // namespace retinue
