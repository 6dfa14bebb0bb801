#include "retinue/torch/process_group.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/StringUtil.h>

#include <cstdint>
#include <functional>
#include <utility>

#include "retinue/base/error.h"
#include "torch/backend/tensor_backend.h"
#include "torch/groups/make_group.h"
#include "torch/libtorch_versions.h"

namespace retinue {
namespace {

static_assert(kGroupTimeout == c10d::kUnsetTimeout);

void check_timeout(const char* call, std::chrono::milliseconds timeout) {
  if (timeout <= std::chrono::milliseconds(0) && timeout != kGroupTimeout)
    throw UsageError(c10::str(call, ": the timeout must be greater than 0; leave it out to use the group's"));
}

at::Tensor first_of(const std::vector<at::Tensor>& tensors) {
  return tensors.empty() ? at::Tensor() : tensors.front();
}

/// Ours as c10d's.
template <typename Asked, typename Options>
Asked asked_of(const Options& options) {
  Asked asked;
  if constexpr (requires { options.op; }) asked.reduceOp = options.op;
  if constexpr (requires { options.dst; }) asked.rootRank = options.dst;
  if constexpr (requires { options.src; }) asked.rootRank = options.src;
  asked.asyncOp = options.async_op;
  asked.timeout = options.timeout;
  return asked;
}

/// What c10d gave for a call; NCCL's gives nothing for one that isn't asynchronous.
Work waited_for(const Work& work, bool async_op) {
  if (async_op) return work;
  if (work) work->wait();
  return nullptr;
}

/// Asks a group's backend if that of `tensor` is ours, or else what c10d offers for all backends.
template <typename Options, typename Ours, typename Other>
Work ask(const char* call, const ProcessGroup& group, const at::Tensor& tensor, const Options& options,
         const std::source_location& where, Ours ours, Other other) {
  c10d::ProcessGroup& ranks = checked_group(call, group);
  check_timeout(call, options.timeout);
  if (TensorBackend* backend = TensorBackend::of(ranks, tensor))
    return ours(*backend, {.async_op = options.async_op, .site = where, .timeout = options.timeout});
  return waited_for(other(ranks), options.async_op);
}

/// Says what its backend is called: c10d itself knows the names of its own ones.
class NamedGroup final : public c10d::ProcessGroup {
 public:
  using c10d::ProcessGroup::ProcessGroup;
  const std::string getBackendName() const override { return getDefaultBackend()->getBackendName(); }
};

/// For a barrier with `device_ids`.
c10d::Backend& backend_of_devices(c10d::ProcessGroup& group, const std::vector<std::int64_t>& device_ids) {
  const std::string backend = group.getDefaultBackend()->getBackendName();
  if (!libtorch::has_backend(group, c10::DeviceType::CUDA))
    throw UsageError(c10::str("barrier: device_ids need a group with nccl, but the backend of this one is ", backend,
                              ": leave them out, or make the group with backend \"cpu:shm,cuda:nccl\""));
  if (device_ids.size() != 1 || device_ids.front() < 0 || device_ids.front() > INT8_MAX)
    throw UsageError(c10::str("barrier: device_ids are ", device_ids, ": pass the one GPU that this rank uses"));
  const int devices = c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->deviceCount();
  if (device_ids.front() >= devices)
    throw UsageError(c10::str("barrier: device_ids are ", device_ids, ", but this process sees ", devices, " GPU",
                              devices == 1 ? "" : "s", ", counted from 0"));
  return *group.getBackend(c10::DeviceType::CUDA);
}

}  // namespace

c10d::ProcessGroup& checked_group(std::string_view call, const ProcessGroup& group) {
  if (!group)
    throw UsageError(c10::str(call,
                              ": the process group is null: this rank is not a member (new_group() and split_group() "
                              "then return null), or the group was destroyed"));
  return *group;
}

ProcessGroup make_group(c10::intrusive_ptr<c10d::Backend> backend, const std::string& name) {
  auto group =
      c10::make_intrusive<NamedGroup>(c10::intrusive_ptr<c10d::Store>(), backend->getRank(), backend->getSize());
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::CUSTOM, std::move(backend));
  group->setDefaultBackend(c10d::ProcessGroup::CUSTOM);
  group->setGroupName(name.empty() ? "world" : name);
  return group;
}

Work all_reduce(const at::Tensor& tensor, const ProcessGroup& group, AllReduceOptions options,
                std::source_location where) {
  return ask(
      "all_reduce", group, tensor, options, where,
      [&](TensorBackend& ours, const CallMode& mode) { return ours.all_reduce(tensor, options.op, mode); },
      [&](c10d::ProcessGroup& ranks) {
        std::vector<at::Tensor> tensors{tensor};
        return ranks.allreduce(tensors, asked_of<c10d::AllreduceOptions>(options));
      });
}

Work all_reduce_coalesced(const std::vector<at::Tensor>& tensors, const ProcessGroup& group, AllReduceOptions options,
                          std::source_location where) {
  return ask(
      "all_reduce_coalesced", group, first_of(tensors), options, where,
      [&](TensorBackend& ours, const CallMode& mode) { return ours.all_reduce(tensors, options.op, mode); },
      [&](c10d::ProcessGroup& ranks) {
        std::vector<at::Tensor> list(tensors);
        return ranks.allreduce_coalesced(list, asked_of<c10d::AllreduceCoalescedOptions>(options));
      });
}

Work reduce(const at::Tensor& tensor, const ProcessGroup& group, ReduceOptions options, std::source_location where) {
  return ask(
      "reduce", group, tensor, options, where,
      [&](TensorBackend& ours, const CallMode& mode) { return ours.reduce(tensor, options.op, options.dst, mode); },
      [&](c10d::ProcessGroup& ranks) {
        std::vector<at::Tensor> tensors{tensor};
        return ranks.reduce(tensors, asked_of<c10d::ReduceOptions>(options));
      });
}

Work reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs, const ProcessGroup& group,
                    ReduceScatterOptions options, std::source_location where) {
  return ask(
      "reduce_scatter", group, output, options, where,
      [&](TensorBackend& ours, const CallMode& mode) { return ours.reduce_scatter(output, inputs, options.op, mode); },
      [&](c10d::ProcessGroup& ranks) {
        std::vector<at::Tensor> outputs{output};
        std::vector<std::vector<at::Tensor>> lists{inputs};
        return ranks.reduce_scatter(outputs, lists, asked_of<c10d::ReduceScatterOptions>(options));
      });
}

Work reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, const ProcessGroup& group,
                           ReduceScatterOptions options, std::source_location where) {
  return ask(
      "reduce_scatter_tensor", group, output, options, where,
      [&](TensorBackend& ours, const CallMode& mode) {
        return ours.reduce_scatter_tensor(output, input, options.op, mode);
      },
      [&](c10d::ProcessGroup& ranks) {
        at::Tensor to = output;
        at::Tensor from = input;
        return std::invoke(libtorch::kReduceScatterSingle, ranks, to, from,
                           asked_of<c10d::ReduceScatterOptions>(options));
      });
}

Work broadcast(const at::Tensor& tensor, const ProcessGroup& group, BroadcastOptions options,
               std::source_location where) {
  return ask(
      "broadcast", group, tensor, options, where,
      [&](TensorBackend& ours, const CallMode& mode) { return ours.broadcast(tensor, options.src, mode); },
      [&](c10d::ProcessGroup& ranks) {
        std::vector<at::Tensor> tensors{tensor};
        return ranks.broadcast(tensors, asked_of<c10d::BroadcastOptions>(options));
      });
}

Work all_gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input, const ProcessGroup& group,
                AllGatherOptions options, std::source_location where) {
  return ask(
      "all_gather", group, input, options, where,
      [&](TensorBackend& ours, const CallMode& mode) { return ours.all_gather(outputs, input, mode); },
      [&](c10d::ProcessGroup& ranks) {
        std::vector<std::vector<at::Tensor>> lists{outputs};
        std::vector<at::Tensor> inputs{input};
        return ranks.allgather(lists, inputs, asked_of<c10d::AllgatherOptions>(options));
      });
}

Work all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input, const ProcessGroup& group,
                            AllGatherOptions options, std::source_location where) {
  return ask(
      "all_gather_into_tensor", group, input, options, where,
      [&](TensorBackend& ours, const CallMode& mode) { return ours.all_gather_into_tensor(output, input, mode); },
      [&](c10d::ProcessGroup& ranks) {
        at::Tensor to = output;
        at::Tensor from = input;
        return std::invoke(libtorch::kAllGatherSingle, ranks, to, from, asked_of<c10d::AllgatherOptions>(options));
      });
}

Work gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input, const ProcessGroup& group,
            GatherOptions options, std::source_location where) {
  return ask(
      "gather", group, input, options, where,
      [&](TensorBackend& ours, const CallMode& mode) { return ours.gather(outputs, input, options.dst, mode); },
      [&](c10d::ProcessGroup& ranks) {
        std::vector<std::vector<at::Tensor>> lists;
        if (ranks.getRank() == options.dst) lists.push_back(outputs);
        std::vector<at::Tensor> inputs{input};
        return ranks.gather(lists, inputs, asked_of<c10d::GatherOptions>(options));
      });
}

Work scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs, const ProcessGroup& group,
             ScatterOptions options, std::source_location where) {
  return ask(
      "scatter", group, output, options, where,
      [&](TensorBackend& ours, const CallMode& mode) { return ours.scatter(output, inputs, options.src, mode); },
      [&](c10d::ProcessGroup& ranks) {
        std::vector<at::Tensor> outputs{output};
        std::vector<std::vector<at::Tensor>> lists;
        if (ranks.getRank() == options.src) lists.push_back(inputs);
        return ranks.scatter(outputs, lists, asked_of<c10d::ScatterOptions>(options));
      });
}

Work all_to_all(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                const ProcessGroup& group, AllToAllOptions options, std::source_location where) {
  return ask(
      "all_to_all", group, first_of(inputs), options, where,
      [&](TensorBackend& ours, const CallMode& mode) { return ours.all_to_all(outputs, inputs, mode); },
      [&](c10d::ProcessGroup& ranks) {
        std::vector<at::Tensor> to(outputs);
        std::vector<at::Tensor> from(inputs);
        return ranks.alltoall(to, from, asked_of<c10d::AllToAllOptions>(options));
      });
}

Work all_to_all_single(const at::Tensor& output, const at::Tensor& input, const ProcessGroup& group,
                       AllToAllOptions options, std::source_location where) {
  return ask(
      "all_to_all_single", group, input, options, where,
      [&](TensorBackend& ours, const CallMode& mode) {
        return ours.all_to_all_single(output, input, options.output_split_sizes, options.input_split_sizes, mode);
      },
      [&](c10d::ProcessGroup& ranks) {
        at::Tensor to = output;
        at::Tensor from = input;
        return std::invoke(libtorch::kAllToAllSingle, ranks, to, from, options.output_split_sizes,
                           options.input_split_sizes, asked_of<c10d::AllToAllOptions>(options));
      });
}

Work barrier(const ProcessGroup& group, BarrierOptions options, std::source_location where) {
  if (!group) return nullptr;
  auto asked = asked_of<c10d::BarrierOptions>(options);
  asked.device_ids = options.device_ids;
  if (!options.device_ids.empty()) {
    check_timeout("barrier", options.timeout);
    return waited_for(backend_of_devices(*group, options.device_ids).barrier(asked), options.async_op);
  }
  return ask(
      "barrier", group, at::Tensor(), options, where,
      [&](TensorBackend& ours, const CallMode& mode) { return ours.barrier(mode); },
      [&](c10d::ProcessGroup& ranks) { return ranks.barrier(asked); });
}

}  // namespace retinue
