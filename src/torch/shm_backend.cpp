#include "torch/shm_backend.h"

#include <c10/util/StringUtil.h>

#include <cstring>
#include <utility>

#include "retinue/base/error.h"

namespace retinue {
namespace {

const CallSite kReducedThroughC10d{"c10d allreduce", 0};
const CallSite kBroadcastThroughC10d{"c10d broadcast", 0};
const CallSite kGatheredThroughC10d{"c10d allgather", 0};
const CallSite kBarrierThroughC10d{"c10d barrier", 0};

CallMode mode_of(bool async_op) {
  return async_op ? CallMode::kAsync : CallMode::kWait;
}

/// What a collective of a single rank does.
void run_alone(const CollectiveCall& call) {
  if (call.kind == CollectiveCall::Kind::kAllGather && call.data != call.input)
    std::memmove(call.data, call.input, call.count);
}

void check_gather(at::TensorList outputs, const at::Tensor& input, std::size_t tensors, std::int64_t elements) {
  if (outputs.size() != tensors)
    throw UsageError(c10::str("all_gather: ", outputs.size(), " output tensors where ", tensors, " are needed"));
  for (const at::Tensor& output : outputs) {
    if (!output.defined()) throw UsageError("all_gather: an output tensor is undefined");
    if (output.numel() != elements || output.scalar_type() != input.scalar_type())
      throw UsageError(c10::str("all_gather: an output tensor holds ", output.numel(), " elements of type ",
                                c10::toString(output.scalar_type()), "; ", elements, " of type ",
                                c10::toString(input.scalar_type()), " are needed"));
  }
}

}  // namespace

ShmBackend::ShmBackend(JobGroup members, std::chrono::milliseconds timeout)
    : Backend(members.rank, static_cast<int>(members.process_slots.size())),
      memory_(members.memory),
      timeout_(timeout) {
  if (size_ > 1) queue_ = std::make_shared<OperationQueue>(Communicator(std::move(members), {.timeout = timeout}));
}

ShmBackend::ShmBackend(std::chrono::milliseconds timeout) : Backend(0, 1), timeout_(timeout) {}

ShmBackend::~ShmBackend() {
  if (queue_) queue_->close();
}

ShmBackend* ShmBackend::of(const c10d::ProcessGroup& group) {
  return dynamic_cast<ShmBackend*>(group.getDefaultBackend().get());
}

void ShmBackend::setTimeout(std::chrono::milliseconds timeout) {
  timeout_.store(timeout, std::memory_order_relaxed);
}

c10d::ErrorType ShmBackend::getError() {
  const std::exception_ptr error = queue_ ? queue_->first_error() : nullptr;
  if (!error) return c10d::ErrorType::SUCCESS;
  try {
    std::rethrow_exception(error);
  } catch (const TimeoutError&) {
    return c10d::ErrorType::TIMEOUT;
  } catch (const PeerLost&) {
    return c10d::ErrorType::REMOTE_ERROR;
  } catch (...) {
    return c10d::ErrorType::COMM_ERROR;
  }
}

ShmBackend::WorkPtr ShmBackend::submit(Request request, CallMode mode, std::chrono::milliseconds timeout) {
  sequence_.fetch_add(1, std::memory_order_relaxed);
  request.call.timeout = timeout == c10d::kUnsetTimeout ? timeout_.load(std::memory_order_relaxed) : timeout;
  if (mode == CallMode::kAsync) return start(std::move(request));
  if (queue_)
    queue_->run(request.call);
  else
    run_alone(request.call);
  request.output.unpack(request.outputs);
  return nullptr;
}

ShmBackend::WorkPtr ShmBackend::start(Request request) {
  std::vector<at::Tensor> outputs = request.outputs.vec();
  const auto sequence = sequence_.load(std::memory_order_relaxed);
  auto work = c10::make_intrusive<ShmWork>(rank_, request.type, outputs, sequence);  // holds the outputs
  if (queue_) {
    std::function<void()> after;
    // Holds the input, too, as long as the operation goes on.
    if (request.output.must_unpack() || request.call.input != nullptr)
      after = [input = std::move(request.input), output = std::move(request.output), outputs = std::move(outputs)] {
        output.unpack(outputs);
      };
    queue_->start(request.call, work, std::move(after));
    return work;
  }
  run_alone(request.call);
  request.output.unpack(outputs);
  work->complete(nullptr);
  return work;
}

ShmBackend::WorkPtr ShmBackend::done_work(c10d::OpType type, at::TensorList outputs) const {
  auto work = c10::make_intrusive<ShmWork>(rank_, type, outputs.vec(), sequence_.load(std::memory_order_relaxed));
  work->complete(nullptr);
  return work;
}

ShmBackend::WorkPtr ShmBackend::all_reduce(at::TensorList tensors, c10d::ReduceOp::RedOpType op, CallMode mode,
                                           CallSite site, std::chrono::milliseconds timeout) {
  TensorBuffer buffer("all_reduce", tensors, TensorBuffer::Access::kReadWrite);
  const ReduceKind kind = reduce_kind("all_reduce", buffer.type(), op);
  const CollectiveCall call{.kind = CollectiveCall::Kind::kAllReduce,
                            .data = buffer.data(),
                            .count = buffer.count() * kind.parts,
                            .dtype = kind.dtype,
                            .op = kind.op,
                            .site = site};
  return submit({c10d::OpType::ALLREDUCE, call, tensors, {}, std::move(buffer)}, mode, timeout);
}

ShmBackend::WorkPtr ShmBackend::broadcast(at::TensorList tensors, std::int64_t root, CallMode mode, CallSite site,
                                          std::chrono::milliseconds timeout) {
  if (root < 0 || root >= size_)
    throw UsageError(c10::str("broadcast: the source rank ", root, " is outside of the group's [0, ", size_, ")"));
  TensorBuffer buffer("broadcast", tensors, root == rank_ ? TensorBuffer::Access::kRead : TensorBuffer::Access::kWrite);
  const CollectiveCall call{.kind = CollectiveCall::Kind::kBroadcast,
                            .data = buffer.data(),
                            .count = buffer.bytes(),
                            .root = static_cast<int>(root),
                            .site = site};
  return submit({c10d::OpType::BROADCAST, call, tensors, {}, std::move(buffer)}, mode, timeout);
}

ShmBackend::WorkPtr ShmBackend::all_gather(at::TensorList outputs, const at::Tensor& input, CallMode mode,
                                           CallSite site, std::chrono::milliseconds timeout) {
  if (!input.defined()) throw UsageError("all_gather: the input tensor is undefined");
  check_gather(outputs, input, static_cast<std::size_t>(size_), input.numel());
  return gather_into(outputs, input, mode, site, timeout);
}

ShmBackend::WorkPtr ShmBackend::gather_into(at::TensorList outputs, const at::Tensor& input, CallMode mode,
                                            CallSite site, std::chrono::milliseconds timeout) {
  TensorBuffer from("all_gather", input, TensorBuffer::Access::kRead);
  TensorBuffer to("all_gather", outputs, TensorBuffer::Access::kWrite);
  const CollectiveCall call{.kind = CollectiveCall::Kind::kAllGather,
                            .input = from.data(),
                            .data = to.data(),
                            .count = from.bytes(),
                            .site = site};
  return submit({c10d::OpType::ALLGATHER, call, outputs, std::move(from), std::move(to)}, mode, timeout);
}

ShmBackend::WorkPtr ShmBackend::barrier(CallMode mode, CallSite site, std::chrono::milliseconds timeout) {
  const CollectiveCall call{.kind = CollectiveCall::Kind::kBarrier, .site = site};
  return submit({c10d::OpType::BARRIER, call, {}, {}, {}}, mode, timeout);
}

ShmBackend::WorkPtr ShmBackend::allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) {
  auto work = all_reduce(tensors, options.reduceOp, mode_of(options.asyncOp), kReducedThroughC10d, options.timeout);
  return work ? work : done_work(c10d::OpType::ALLREDUCE, tensors);
}

ShmBackend::WorkPtr ShmBackend::allreduce_coalesced(std::vector<at::Tensor>& tensors,
                                                    const c10d::AllreduceCoalescedOptions& options) {
  return allreduce(tensors, options);
}

ShmBackend::WorkPtr ShmBackend::broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) {
  auto work = broadcast(tensors, options.rootRank, mode_of(options.asyncOp), kBroadcastThroughC10d, options.timeout);
  return work ? work : done_work(c10d::OpType::BROADCAST, tensors);
}

ShmBackend::WorkPtr ShmBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                          std::vector<at::Tensor>& inputs, const c10d::AllgatherOptions& options) {
  if (inputs.size() != 1 || outputs.size() != 1)
    throw UsageError("all_gather: a rank gives one input tensor and one list of output tensors");
  auto work = all_gather(outputs[0], inputs[0], mode_of(options.asyncOp), kGatheredThroughC10d, options.timeout);
  return work ? work : done_work(c10d::OpType::ALLGATHER, outputs[0]);
}

ShmBackend::WorkPtr ShmBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::AllgatherOptions& options) {
  check_gather(output, input, 1, input.numel() * size_);
  auto work = gather_into(output, input, mode_of(options.asyncOp), kGatheredThroughC10d, options.timeout);
  return work ? work : done_work(c10d::OpType::_ALLGATHER_BASE, output);
}

ShmBackend::WorkPtr ShmBackend::barrier(const c10d::BarrierOptions& options) {
  auto work = barrier(mode_of(options.asyncOp), kBarrierThroughC10d, options.timeout);
  return work ? work : done_work(c10d::OpType::BARRIER, {});
}

}  // namespace retinue
