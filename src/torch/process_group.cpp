#include "retinue/torch/process_group.h"

#include <c10/util/StringUtil.h>

#include <utility>

#include "retinue/base/error.h"
#include "torch/make_group.h"
#include "torch/shm_backend.h"

namespace retinue {
namespace {

c10d::ProcessGroup& checked(const char* call, const ProcessGroup& group) {
  if (!group) throw UsageError(c10::str(call, ": the process group is null"));
  return *group;
}

CallSite site_of(const std::source_location& where) {
  return CallSite(where);
}

CallMode mode_of(bool async_op) {
  return async_op ? CallMode::kAsync : CallMode::kWait;
}

/// What c10d's own methods return, in the manner of these functions.
Work wait_unless(bool async_op, Work work) {
  if (async_op) return work;
  work->wait();
  return nullptr;
}

}  // namespace

void check_options(const ProcessGroupOptions& options) {
  if (options.backend != "shm")
    throw UsageError(c10::str("init_process_group: there is no backend \"", options.backend, "\"; use \"shm\""));
  if (options.init_method != "env://")
    throw UsageError(
        c10::str("init_process_group: there is no init method \"", options.init_method, "\"; use \"env://\""));
  if (options.timeout <= std::chrono::milliseconds(0))
    throw UsageError("init_process_group: the timeout must be longer than nothing");
}

ProcessGroup make_group(c10::intrusive_ptr<c10d::Backend> backend, const std::string& name) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(c10::intrusive_ptr<c10d::Store>(), backend->getRank(),
                                                       backend->getSize());
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::CUSTOM, std::move(backend));
  group->setDefaultBackend(c10d::ProcessGroup::CUSTOM);
  group->setGroupName(name.empty() ? "world" : name);
  return group;
}

ProcessGroup init_process_group(JobGroup members, ProcessGroupOptions options) {
  check_options(options);
  if (!options.group_name.empty()) members.name += "/" + options.group_name;
  return make_group(c10::make_intrusive<ShmBackend>(std::move(members), options.timeout), options.group_name);
}

Work all_reduce(const at::Tensor& tensor, const ProcessGroup& group, AllReduceOptions options,
                std::source_location where) {
  c10d::ProcessGroup& ranks = checked("all_reduce", group);
  if (ShmBackend* shm = ShmBackend::of(ranks))
    return shm->all_reduce(tensor, options.op, mode_of(options.async_op), site_of(where));
  std::vector<at::Tensor> tensors{tensor};
  c10d::AllreduceOptions asked;
  asked.reduceOp = options.op;
  asked.asyncOp = options.async_op;
  return wait_unless(options.async_op, ranks.allreduce(tensors, asked));
}

Work broadcast(const at::Tensor& tensor, const ProcessGroup& group, BroadcastOptions options,
               std::source_location where) {
  c10d::ProcessGroup& ranks = checked("broadcast", group);
  if (ShmBackend* shm = ShmBackend::of(ranks))
    return shm->broadcast(tensor, options.src, mode_of(options.async_op), site_of(where));
  std::vector<at::Tensor> tensors{tensor};
  c10d::BroadcastOptions asked;
  asked.rootRank = options.src;
  asked.asyncOp = options.async_op;
  return wait_unless(options.async_op, ranks.broadcast(tensors, asked));
}

Work all_gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input, const ProcessGroup& group,
                AllGatherOptions options, std::source_location where) {
  c10d::ProcessGroup& ranks = checked("all_gather", group);
  if (ShmBackend* shm = ShmBackend::of(ranks))
    return shm->all_gather(outputs, input, mode_of(options.async_op), site_of(where));
  std::vector<std::vector<at::Tensor>> lists{outputs};
  std::vector<at::Tensor> inputs{input};
  c10d::AllgatherOptions asked;
  asked.asyncOp = options.async_op;
  return wait_unless(options.async_op, ranks.allgather(lists, inputs, asked));
}

Work barrier(const ProcessGroup& group, BarrierOptions options, std::source_location where) {
  c10d::ProcessGroup& ranks = checked("barrier", group);
  if (ShmBackend* shm = ShmBackend::of(ranks)) return shm->barrier(mode_of(options.async_op), site_of(where));
  c10d::BarrierOptions asked;
  asked.asyncOp = options.async_op;
  return wait_unless(options.async_op, ranks.barrier(asked));
}

}  // namespace retinue
