// What c10d's own callers use: each operation hands on to the one of TensorBackend's own face, and always gives a work.
#include "retinue/base/error.h"
#include "retinue/torch/detail/c10d_caller.h"
#include "torch/backend/tensor_backend.h"

namespace retinue {
namespace {

template <typename Options>
CallMode mode_of(const Options& options, const char* call) {
  return {.async_op = options.asyncOp,
          .site = detail::c10d_call_site(call),
          .timeout = options.timeout,
          .always_gives_work = true};
}

template <typename Lists>
const std::vector<at::Tensor>& only_list(const char* call, const Lists& lists) {
  if (lists.size() != 1) throw UsageError(c10::str(call, ": pass one list of tensors, not ", lists.size()));
  return lists[0];
}

const at::Tensor& only_tensor(const char* call, const std::vector<at::Tensor>& tensors) {
  if (tensors.size() != 1) throw UsageError(c10::str(call, ": pass one tensor, not ", tensors.size()));
  return tensors[0];
}

/// The parts of tensors of which each has one for each rank, as large as the tensor of `of_one_rank` at its place:
/// those of rank 0 first.
std::vector<at::Tensor> parts_by_rank(const char* call, const std::vector<at::Tensor>& of_all_ranks,
                                      const std::vector<at::Tensor>& of_one_rank, int ranks) {
  if (of_all_ranks.size() != of_one_rank.size())
    throw UsageError(
        c10::str(call, ": ", of_all_ranks.size(), " tensors of all ranks, and ", of_one_rank.size(), " of this one"));
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < ranks; ++rank)
    for (std::size_t i = 0; i < of_all_ranks.size(); ++i) {
      const at::Tensor& whole = of_all_ranks[i];
      check_elements(call, whole, of_one_rank[i], ranks);
      if (!whole.is_contiguous()) throw UsageError(c10::str(call, ": tensor ", i, " of all ranks is not contiguous"));
      parts.push_back(whole.detach().view({ranks, -1}).select(0, rank));
    }
  return parts;
}

}  // namespace

TensorBackend::WorkPtr TensorBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                const c10d::AllreduceOptions& options) {
  return all_reduce(tensors, options.reduceOp, mode_of(options, "c10d allreduce"));
}

TensorBackend::WorkPtr TensorBackend::allreduce_coalesced(std::vector<at::Tensor>& tensors,
                                                          const c10d::AllreduceCoalescedOptions& options) {
  return allreduce(tensors, options);
}

TensorBackend::WorkPtr TensorBackend::reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) {
  return reduce(tensors, options.reduceOp, options.rootRank, mode_of(options, "c10d reduce"));
}

TensorBackend::WorkPtr TensorBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                const c10d::BroadcastOptions& options) {
  return broadcast(tensors, options.rootRank, mode_of(options, "c10d broadcast"));
}

TensorBackend::WorkPtr TensorBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                std::vector<at::Tensor>& inputs,
                                                const c10d::AllgatherOptions& options) {
  const std::vector<at::Tensor>& list = only_list("all_gather", outputs);
  return all_gather(list, only_tensor("all_gather", inputs), mode_of(options, "c10d allgather"));
}

TensorBackend::WorkPtr TensorBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::AllgatherOptions& options) {
  return all_gather_into_tensor(output, input, mode_of(options, "c10d allgather"));
}

TensorBackend::WorkPtr TensorBackend::allgather_coalesced(std::vector<std::vector<at::Tensor>>& outputs,
                                                          std::vector<at::Tensor>& inputs,
                                                          const c10d::AllgatherOptions& options) {
  constexpr const char* kCall = "allgather_coalesced";
  if (outputs.size() != static_cast<std::size_t>(size_))
    throw UsageError(c10::str(kCall, ": ", outputs.size(), " lists of outputs for a group of ", size_));
  std::vector<at::Tensor> all;
  for (std::size_t rank = 0; rank < outputs.size(); ++rank) {
    if (outputs[rank].size() != inputs.size())
      throw UsageError(
          c10::str(kCall, ": ", inputs.size(), " inputs, and ", outputs[rank].size(), " outputs of rank ", rank));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      check_elements(kCall, outputs[rank][i], inputs[i], 1);
      all.push_back(outputs[rank][i]);
    }
  }
  return all_gather_coalesced(all, inputs, mode_of(options, "c10d allgather_coalesced"));
}

TensorBackend::WorkPtr TensorBackend::allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                                      std::vector<at::Tensor>& inputs,
                                                                      const c10d::AllgatherOptions& options) {
  const std::vector<at::Tensor> parts = parts_by_rank("allgather_into_tensor_coalesced", outputs, inputs, size_);
  return all_gather_coalesced(parts, inputs, mode_of(options, "c10d allgather_into_tensor_coalesced"));
}

TensorBackend::WorkPtr TensorBackend::gather(std::vector<std::vector<at::Tensor>>& outputs,
                                             std::vector<at::Tensor>& inputs, const c10d::GatherOptions& options) {
  const at::TensorList list =
      options.rootRank == rank_ ? at::TensorList(only_list("gather", outputs)) : at::TensorList();
  return gather(list, only_tensor("gather", inputs), options.rootRank, mode_of(options, "c10d gather"));
}

TensorBackend::WorkPtr TensorBackend::scatter(std::vector<at::Tensor>& outputs,
                                              std::vector<std::vector<at::Tensor>>& inputs,
                                              const c10d::ScatterOptions& options) {
  const at::TensorList list =
      options.rootRank == rank_ ? at::TensorList(only_list("scatter", inputs)) : at::TensorList();
  return scatter(only_tensor("scatter", outputs), list, options.rootRank, mode_of(options, "c10d scatter"));
}

TensorBackend::WorkPtr TensorBackend::reduce_scatter(std::vector<at::Tensor>& outputs,
                                                     std::vector<std::vector<at::Tensor>>& inputs,
                                                     const c10d::ReduceScatterOptions& options) {
  return reduce_scatter(only_tensor("reduce_scatter", outputs), only_list("reduce_scatter", inputs), options.reduceOp,
                        mode_of(options, "c10d reduce_scatter"));
}

TensorBackend::WorkPtr TensorBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                           const c10d::ReduceScatterOptions& options) {
  return reduce_scatter_tensor(output, input, options.reduceOp, mode_of(options, "c10d reduce_scatter"));
}

TensorBackend::WorkPtr TensorBackend::reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                                                      std::vector<at::Tensor>& inputs,
                                                                      const c10d::ReduceScatterOptions& options) {
  const std::vector<at::Tensor> parts = parts_by_rank("reduce_scatter_tensor_coalesced", inputs, outputs, size_);
  return reduce_scatter_coalesced(outputs, parts, options.reduceOp,
                                  mode_of(options, "c10d reduce_scatter_tensor_coalesced"));
}

TensorBackend::WorkPtr TensorBackend::alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                               const c10d::AllToAllOptions& options) {
  return all_to_all(outputs, inputs, mode_of(options, "c10d alltoall"));
}

TensorBackend::WorkPtr TensorBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                    std::vector<std::int64_t>& output_splits,
                                                    std::vector<std::int64_t>& input_splits,
                                                    const c10d::AllToAllOptions& options) {
  return all_to_all_single(output, input, output_splits, input_splits, mode_of(options, "c10d alltoall"));
}

TensorBackend::WorkPtr TensorBackend::barrier(const c10d::BarrierOptions& options) {
  return barrier(mode_of(options, "c10d barrier"));
}

void TensorBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  MonitoredBarrierOptions asked{.wait_all_ranks = wait_all_ranks};
  if (options.timeout != c10d::kUnsetTimeout) asked.timeout = options.timeout;
  monitored_barrier(asked, detail::c10d_call_site("c10d monitoredBarrier"));
}

TensorBackend::WorkPtr TensorBackend::send(std::vector<at::Tensor>& tensors, int dst, int tag) {
  const TensorP2POp message = TensorP2POp::isend(only_tensor("send", tensors), dst, tag);
  return start({&message, 1}, {.async_op = true, .site = detail::c10d_call_site("c10d send")}).front();
}

TensorBackend::WorkPtr TensorBackend::recv(std::vector<at::Tensor>& tensors, int src, int tag) {
  const TensorP2POp message = TensorP2POp::irecv(only_tensor("recv", tensors), src, tag);
  return start({&message, 1}, {.async_op = true, .site = detail::c10d_call_site("c10d recv")}).front();
}

TensorBackend::WorkPtr TensorBackend::recvAnysource(std::vector<at::Tensor>& tensors, int tag) {
  return recv(tensors, kAnySource, tag);
}

c10::intrusive_ptr<c10d::Backend::Options> TensorBackend::getBackendOptions() {
  return c10::make_intrusive<Options>(name_, timeout());
}

}  // namespace retinue
