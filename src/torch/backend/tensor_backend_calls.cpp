// The collectives of TensorBackend's own face, as calls of a communicator.
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <utility>

#include "retinue/base/error.h"
#include "torch/backend/sparse_sum.h"
#include "torch/backend/tensor_backend.h"

namespace retinue {
namespace {

using Access = TensorBuffer::Access;

void check_type(std::string_view call, c10::ScalarType output, c10::ScalarType input) {
  if (output != input)
    throw UsageError(c10::str(call, ": the input is of type ", c10::toString(input), ", the output of type ",
                              c10::toString(output)));
}

/// Parts of `tensor` by rows of its first dimension.
std::vector<Bytes> rows_of(const TensorBuffer& buffer, const at::Tensor& tensor, at::IntArrayRef splits, int size) {
  constexpr std::string_view kCall = "all_to_all_single";
  if (tensor.dim() == 0) throw UsageError(c10::str(kCall, ": a tensor without dimensions has no rows to send"));
  if (splits.empty()) {
    if (tensor.size(0) % size != 0)
      throw UsageError(c10::str(kCall, ": a tensor of ", tensor.size(0), " rows can't be divided into ", size,
                                " equal parts; pass the split sizes"));
    const std::vector<std::int64_t> even(static_cast<std::size_t>(size), tensor.size(0) / size);
    return rows_of(buffer, tensor, even, size);
  }
  if (splits.size() != static_cast<std::size_t>(size))
    throw UsageError(c10::str(kCall, ": ", splits.size(), " splits for a group of ", size));
  std::int64_t rows = 0;
  const std::size_t row_bytes = tensor.size(0) == 0 ? 0 : buffer.bytes() / static_cast<std::size_t>(tensor.size(0));
  std::vector<Bytes> parts;
  for (const std::int64_t split : splits) {
    if (split < 0 || split > tensor.size(0) - rows)
      throw UsageError(c10::str(kCall, ": the splits ", splits, " don't fit a tensor of ", tensor.size(0), " rows"));
    parts.push_back(
        buffer.part().subspan(static_cast<std::size_t>(rows) * row_bytes, static_cast<std::size_t>(split) * row_bytes));
    rows += split;
  }
  if (rows != tensor.size(0))
    throw UsageError(
        c10::str(kCall, ": the splits ", splits, " add up to ", rows, " rows, but the tensor has ", tensor.size(0)));
  return parts;
}

}  // namespace

TensorBackend::WorkPtr TensorBackend::all_reduce(at::TensorList tensors, const c10d::ReduceOp& op,
                                                 const CallMode& mode) {
  // By the number alone, on which all ranks agree; how a rank's tensors lie is its own.
  if (tensors.size() > 1) return all_reduce_coalesced(tensors, op, mode);
  if (tensors.size() == 1 && tensors[0].defined() && tensors[0].layout() != at::kStrided)
    return all_reduce_sparse(tensors[0], op, mode);
  TensorBuffer data("all_reduce", tensors, Access::kReadWrite);
  CollectiveCall call = CollectiveCall::all_reduce(data.data(), data.count(), {}, {});
  set_reduction(call, data.type(), op);
  return submit({.type = c10d::OpType::ALLREDUCE, .call = call, .tensors = tensors, .output = std::move(data)}, mode);
}

TensorBackend::WorkPtr TensorBackend::all_reduce_coalesced(at::TensorList tensors, const c10d::ReduceOp& op,
                                                           const CallMode& mode) {
  TensorParts data("all_reduce_coalesced", tensors, Access::kReadWrite);
  CollectiveCall call = CollectiveCall::all_reduce_coalesced(data.parts(), {}, {});
  set_reduction(call, data.type(), op);
  return submit(
      {.type = c10d::OpType::ALLREDUCE_COALESCED, .call = call, .tensors = tensors, .outputs = std::move(data)}, mode);
}

TensorBackend::WorkPtr TensorBackend::all_reduce_sparse(const at::Tensor& tensor, const c10d::ReduceOp& op,
                                                        const CallMode& mode) {
  check_sparse(tensor, op);
  Request request{.type = c10d::OpType::ALLREDUCE, .call = {.kind = CollectiveKind::kAllReduce}, .tensors = tensor};
  if (size_ > 1) {
    request.body = [tensor, site = mode.site](Communicator& ranks) { sum_sparse(ranks, tensor, site); };
    return submit(std::move(request), mode);
  }
  check_open();
  const at::NoGradGuard no_grad;
  tensor.copy_(tensor.coalesce());
  return mode.async_op || mode.always_gives_work ? done_work(request.type, tensor) : nullptr;
}

TensorBackend::WorkPtr TensorBackend::reduce(at::TensorList tensors, const c10d::ReduceOp& op, std::int64_t root,
                                             const CallMode& mode) {
  TensorBuffer data("reduce", tensors, is_root("reduce", root) ? Access::kReadWrite : Access::kRead);
  CollectiveCall call = CollectiveCall::reduce(data.data(), data.data(), data.count(), {}, {}, static_cast<int>(root));
  set_reduction(call, data.type(), op);
  return submit({.type = c10d::OpType::REDUCE, .call = call, .tensors = tensors, .output = std::move(data)}, mode);
}

TensorBackend::WorkPtr TensorBackend::broadcast(at::TensorList tensors, std::int64_t root, const CallMode& mode) {
  TensorBuffer data("broadcast", tensors, is_root("broadcast", root) ? Access::kRead : Access::kWrite);
  const CollectiveCall call =
      CollectiveCall::broadcast(data.data(), data.bytes(), static_cast<int>(root)).of(element_type(data.type()));
  return submit({.type = c10d::OpType::BROADCAST, .call = call, .tensors = tensors, .output = std::move(data)}, mode);
}

TensorBackend::WorkPtr TensorBackend::all_gather(at::TensorList outputs, const at::Tensor& input,
                                                 const CallMode& mode) {
  TensorBuffer from("all_gather", input, Access::kRead);
  TensorParts to("all_gather", outputs, Access::kWrite);
  check_type("all_gather", to.type(), from.type());
  const CollectiveCall call =
      to.is_even() && outputs.size() == static_cast<std::size_t>(size_) && to.part_bytes() == from.bytes()
          ? CollectiveCall::all_gather(from.data(), to.data(), from.bytes())
          : CollectiveCall::all_gather(from.part(), to.parts());
  return submit({.type = c10d::OpType::ALLGATHER,
                 .call = call.of(element_type(from.type())),
                 .tensors = outputs,
                 .given = input,
                 .input = std::move(from),
                 .outputs = std::move(to)},
                mode);
}

TensorBackend::WorkPtr TensorBackend::gather_run(const char* call, c10d::OpType type, at::TensorList outputs,
                                                 at::TensorList inputs, const CallMode& mode) {
  TensorBuffer from(call, inputs, Access::kRead);
  TensorBuffer to(call, outputs, Access::kWrite);
  check_type(call, to.type(), from.type());
  return submit({.type = type,
                 .call = CollectiveCall::all_gather(from.data(), to.data(), from.bytes()).of(element_type(from.type())),
                 .tensors = outputs,
                 .given = inputs,
                 .input = std::move(from),
                 .output = std::move(to)},
                mode);
}

TensorBackend::WorkPtr TensorBackend::all_gather_coalesced(at::TensorList outputs, at::TensorList inputs,
                                                           const CallMode& mode) {
  return gather_run("all_gather_coalesced", c10d::OpType::ALLGATHER_COALESCED, outputs, inputs, mode);
}

TensorBackend::WorkPtr TensorBackend::all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input,
                                                             const CallMode& mode) {
  check_elements("all_gather_into_tensor", output, input, size_);
  return gather_run("all_gather_into_tensor", c10d::OpType::_ALLGATHER_BASE, output, input, mode);
}

TensorBackend::WorkPtr TensorBackend::gather(at::TensorList outputs, const at::Tensor& input, std::int64_t root,
                                             const CallMode& mode) {
  const bool takes = is_root("gather", root);
  TensorBuffer from("gather", input, Access::kRead);
  TensorParts to = takes ? TensorParts("gather", outputs, Access::kWrite) : TensorParts();
  if (takes) check_type("gather", to.type(), from.type());
  const CollectiveCall call = CollectiveCall::gather(from.part(), to.parts(), static_cast<int>(root));
  return submit({.type = c10d::OpType::GATHER,
                 .call = call.of(element_type(from.type())),
                 .tensors = takes ? outputs : at::TensorList(),
                 .given = input,
                 .input = std::move(from),
                 .outputs = std::move(to)},
                mode);
}

TensorBackend::WorkPtr TensorBackend::scatter(const at::Tensor& output, at::TensorList inputs, std::int64_t root,
                                              const CallMode& mode) {
  const bool gives = is_root("scatter", root);
  TensorParts from = gives ? TensorParts("scatter", inputs, Access::kRead) : TensorParts();
  TensorBuffer to("scatter", output, Access::kWrite);
  if (gives) check_type("scatter", to.type(), from.type());
  const CollectiveCall call = CollectiveCall::scatter(from.const_parts(), to.part(), static_cast<int>(root));
  return submit({.type = c10d::OpType::SCATTER,
                 .call = call.of(element_type(to.type())),
                 .tensors = output,
                 .given = gives ? inputs : at::TensorList(),
                 .inputs = std::move(from),
                 .output = std::move(to)},
                mode);
}

TensorBackend::WorkPtr TensorBackend::reduce_scatter(const at::Tensor& output, at::TensorList inputs,
                                                     const c10d::ReduceOp& op, const CallMode& mode) {
  TensorParts from("reduce_scatter", inputs, Access::kRead);
  TensorBuffer to("reduce_scatter", output, Access::kWrite);
  check_type("reduce_scatter", to.type(), from.type());
  CollectiveCall call =
      from.is_even() && inputs.size() == static_cast<std::size_t>(size_) && from.part_bytes() == to.bytes()
          ? CollectiveCall::reduce_scatter(from.data(), to.data(), to.count(), {}, {})
          : CollectiveCall::reduce_scatter(from.const_parts(), to.data(), to.count(), {}, {});
  set_reduction(call, to.type(), op);
  return submit({.type = c10d::OpType::REDUCE_SCATTER,
                 .call = call,
                 .tensors = output,
                 .given = inputs,
                 .inputs = std::move(from),
                 .output = std::move(to)},
                mode);
}

TensorBackend::WorkPtr TensorBackend::reduce_scatter_run(const char* call, c10d::OpType type, at::TensorList outputs,
                                                         at::TensorList inputs, const c10d::ReduceOp& op,
                                                         const CallMode& mode) {
  TensorBuffer from(call, inputs, Access::kRead);
  TensorBuffer to(call, outputs, Access::kWrite);
  check_type(call, to.type(), from.type());
  CollectiveCall asked = CollectiveCall::reduce_scatter(from.data(), to.data(), to.count(), {}, {});
  set_reduction(asked, to.type(), op);
  return submit({.type = type,
                 .call = asked,
                 .tensors = outputs,
                 .given = inputs,
                 .input = std::move(from),
                 .output = std::move(to)},
                mode);
}

TensorBackend::WorkPtr TensorBackend::reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input,
                                                            const c10d::ReduceOp& op, const CallMode& mode) {
  check_elements("reduce_scatter_tensor", input, output, size_);
  return reduce_scatter_run("reduce_scatter_tensor", c10d::OpType::_REDUCE_SCATTER_BASE, output, input, op, mode);
}

TensorBackend::WorkPtr TensorBackend::reduce_scatter_coalesced(at::TensorList outputs, at::TensorList inputs,
                                                               const c10d::ReduceOp& op, const CallMode& mode) {
  return reduce_scatter_run("reduce_scatter_coalesced", c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, outputs, inputs,
                            op, mode);
}

TensorBackend::WorkPtr TensorBackend::all_to_all(at::TensorList outputs, at::TensorList inputs, const CallMode& mode) {
  TensorParts from("all_to_all", inputs, Access::kRead);
  TensorParts to("all_to_all", outputs, Access::kWrite);
  check_type("all_to_all", to.type(), from.type());
  const CollectiveCall call = CollectiveCall::all_to_all(from.const_parts(), to.parts());
  return submit({.type = c10d::OpType::ALLTOALL,
                 .call = call.of(element_type(from.type())),
                 .tensors = outputs,
                 .given = inputs,
                 .inputs = std::move(from),
                 .outputs = std::move(to)},
                mode);
}

TensorBackend::WorkPtr TensorBackend::all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                                        at::IntArrayRef output_splits, at::IntArrayRef input_splits,
                                                        const CallMode& mode) {
  Request request{.type = c10d::OpType::ALLTOALL_BASE,
                  .call = {},
                  .tensors = output,
                  .given = input,
                  .input = TensorBuffer("all_to_all_single", input, Access::kRead),
                  .output = TensorBuffer("all_to_all_single", output, Access::kWrite)};
  check_type("all_to_all_single", request.output.type(), request.input.type());
  request.output_rows = rows_of(request.output, output, output_splits, size_);
  for (const Bytes& rows : rows_of(request.input, input, input_splits, size_)) request.input_rows.emplace_back(rows);
  const bool is_even = output_splits.empty() && input_splits.empty() && request.input.bytes() == request.output.bytes();
  if (is_even) {
    request.call = CollectiveCall::all_to_all(request.input.data(), request.output.data(),
                                              request.input.bytes() / static_cast<std::size_t>(size_))
                       .of(element_type(request.input.type()));
    return submit(std::move(request), mode);
  }
  request.call =
      CollectiveCall::all_to_all(request.input_rows, request.output_rows).of(element_type(request.input.type()));
  return submit(std::move(request), mode);
}

TensorBackend::WorkPtr TensorBackend::barrier(const CallMode& mode) {
  return submit({.type = c10d::OpType::BARRIER, .call = CollectiveCall::barrier()}, mode);
}

}  // namespace retinue
