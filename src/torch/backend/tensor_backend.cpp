#include "torch/backend/tensor_backend.h"

#include <ATen/record_function.h>
#include <c10/util/StringUtil.h>

#include <string>
#include <utility>

#include "retinue/base/error.h"
#include "torch/libtorch_versions.h"

namespace retinue {

TensorBackend::TensorBackend(const char* name, int rank, int size, const Waits& waits,
                             std::shared_ptr<OperationQueue> queue)
    : Backend(rank, size), name_(name), queue_(std::move(queue)), timeout_(waits.timeout), waits_(waits) {}

TensorBackend::Waits TensorBackend::waits() const {
  Waits waits = waits_;
  waits.timeout = timeout();
  return waits;
}

TensorBackend* TensorBackend::of(const c10d::ProcessGroup& group) {
  return dynamic_cast<TensorBackend*>(group.getDefaultBackend().get());
}

TensorBackend* TensorBackend::of(c10d::ProcessGroup& group, const at::Tensor& tensor) {
  const bool is_anothers =
      tensor.defined() && !tensor.device().is_cpu() && libtorch::has_backend(group, tensor.device().type());
  return is_anothers ? nullptr : of(group);
}

void TensorBackend::shutdown() {
  if (closed_.exchange(true, std::memory_order_relaxed)) return;
  if (queue_) queue_->close();
  close_messages();
  queue_.reset();
}

void TensorBackend::check_open() const {
  if (closed_.load(std::memory_order_relaxed)) throw Closed("the process group was destroyed on this rank");
}

void TensorBackend::setTimeout(std::chrono::milliseconds timeout) {
  timeout_.store(timeout, std::memory_order_relaxed);
}

std::exception_ptr TensorBackend::first_error() const {
  return queue_ ? queue_->first_error() : nullptr;
}

c10d::ErrorType TensorBackend::getError() {
  std::exception_ptr error = first_error();
  if (!error) error = first_message_error();
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

bool TensorBackend::is_root(std::string_view call, std::int64_t root) const {
  if (root < 0 || root >= size_)
    throw UsageError(c10::str(call, ": rank ", root, " is outside of the group's [0, ", size_, ")"));
  return root == rank_;
}

std::chrono::milliseconds TensorBackend::timeout_of(const CallMode& mode) const {
  return mode.timeout == c10d::kUnsetTimeout ? timeout_.load(std::memory_order_relaxed) : mode.timeout;
}

bool TensorBackend::use_communicator(const std::function<void(Communicator&)>& body) {
  check_open();
  sequence_.fetch_add(1, std::memory_order_relaxed);
  if (!queue_) return false;
  QueuedCall call;
  call.timeout = timeout();
  call.body = body;
  queue_->run(call);
  return true;
}

void TensorBackend::monitored_barrier(const MonitoredBarrierOptions& options, const CallSite& site) {
  use_communicator([&](Communicator& ranks) { ranks.monitored_barrier(options, site); });
}

TensorBackend::WorkPtr TensorBackend::submit(Request request, const CallMode& mode) {
  check_open();
  if (!request.body) check_call(request.call, rank_, size_);
  const std::uint64_t sequence = sequence_.fetch_add(1, std::memory_order_relaxed) + 1;
  const QueuedCall call{
      .call = request.call, .site = mode.site, .timeout = timeout_of(mode), .body = std::move(request.body)};
  const std::string_view name = name_of(call.call.kind);
  const std::string title = profiler_title(name_, call.body ? c10::str("sparse_", name) : name);
  if (mode.async_op) return start(std::move(request), call, sequence, title);
  std::vector<c10::IValue> shapes;
  at::RecordFunction shown(at::RecordScope::USER_SCOPE);
  if (shown.isActive()) {
    const at::TensorList given = request.given.empty() ? request.tensors : request.given;
    shapes.assign(given.begin(), given.end());
    shown._setAsync();  // As c10d's own are.
    shown.before(title, c10::ArrayRef<const c10::IValue>(shapes.data(), shapes.size()));
  }
  if (queue_)
    queue_->run(call);
  else
    run_alone(call.call);
  request.output.unpack(request.tensors);
  request.outputs.unpack(request.tensors);
  return mode.always_gives_work ? done_work(request.type, request.tensors) : nullptr;
}

TensorBackend::WorkPtr TensorBackend::done_work(c10d::OpType type, at::TensorList outputs) const {
  auto done = c10::make_intrusive<ShmWork>(rank_, type, outputs.vec(), sequence_.load(std::memory_order_relaxed));
  done->complete(nullptr);
  return done;
}

TensorBackend::WorkPtr TensorBackend::start(Request request, const QueuedCall& call, std::uint64_t sequence,
                                            const std::string& title) {
  std::vector<at::Tensor> tensors = request.tensors.vec();
  // Holds the tensors.
  auto work = c10::make_intrusive<ShmWork>(rank_, request.type, tensors, sequence, title, request.given);
  // Holds all memory of the operation as long as it goes on.
  const auto after = [request = std::make_shared<Request>(std::move(request)), tensors = std::move(tensors)] {
    request->output.unpack(tensors);
    request->outputs.unpack(tensors);
  };
  if (queue_) {
    queue_->start(call, work, after);
    return work;
  }
  run_alone(call.call);
  after();
  work->complete(nullptr);
  return work;
}

}  // namespace retinue
