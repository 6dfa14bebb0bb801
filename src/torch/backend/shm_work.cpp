#include "torch/backend/shm_work.h"

#include <ATen/core/jit_type.h>
#include <ATen/record_function.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "retinue/base/error.h"
#include "retinue/ipc/detail/blocked_time.h"
#include "retinue/os/detail/interrupt.h"

namespace retinue {
namespace {

constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 365);
constexpr std::chrono::milliseconds kLookForSignals{50};

void settle(c10::ivalue::Future& future, const std::vector<at::Tensor>& outputs, const std::exception_ptr& error) {
  if (error)
    future.setError(error);
  else
    future.markCompleted(c10::IValue(outputs));
}

}  // namespace

std::string profiler_title(std::string_view backend, std::string_view operation) {
  const bool is_observed = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value();
  return is_observed ? c10::str(backend, ":", operation) : "";
}

std::optional<std::vector<at::Tensor>> shown_tensors(const std::string& title, at::TensorList tensors) {
  return title.empty() ? std::nullopt : std::optional(tensors.vec());
}

ShmWork::ShmWork(int rank, c10d::OpType type, std::vector<at::Tensor> outputs, std::uint64_t sequence,
                 const std::string& title, at::TensorList inputs)
    : Work(rank, type, title.empty() ? nullptr : title.c_str(),
           shown_tensors(title, inputs.empty() ? at::TensorList(outputs) : inputs)),
      outputs_(std::move(outputs)),
      sequence_(sequence) {}

bool ShmWork::wait(std::chrono::milliseconds timeout) {
  const detail::BlockedScope blocked;
  if (timeout == kNoTimeout) {
    if (help_ && !isCompleted()) help_(*this);
    await_end(std::chrono::steady_clock::now() + kLongestWait);
    return Work::wait();
  }
  return wait_until(std::chrono::steady_clock::now() + std::min(timeout, kLongestWait), timeout);
}

bool ShmWork::wait_until(std::chrono::steady_clock::time_point end, std::chrono::milliseconds timeout) {
  if (!await_end(end))
    throw TimeoutError(c10::str("wait: the timeout of ", timeout.count(), " ms passed; the ",
                                c10d::opTypeToString(retrieveOpType()), " has not finished and continues"));
  return Work::wait();
}

bool ShmWork::await_end(std::chrono::steady_clock::time_point end) {
  // Where nobody asks for signals there is no reason to wake.
  const std::chrono::milliseconds look =
      detail::interrupt_check.load(std::memory_order_acquire) == nullptr ? kLongestWait : kLookForSignals;
  std::unique_lock lock(mutex_);
  while (!cv_.wait_until(lock, std::min(end, std::chrono::steady_clock::now() + look), [this] { return completed_; })) {
    lock.unlock();
    if (detail::is_interrupted())
      throw SystemError(c10::str("wait: the ", c10d::opTypeToString(retrieveOpType()), " continues"), EINTR);
    if (std::chrono::steady_clock::now() >= end) return false;
    lock.lock();
  }
  return true;
}

void ShmWork::complete(std::exception_ptr error) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(mutex_);
    settled_ = true;
    error_ = error;
    future = future_;
  }
  finish(error);
  if (future) settle(*future, outputs_, error);  // outside of the lock: callbacks may ask the work
}

c10::intrusive_ptr<c10::ivalue::Future> ShmWork::getFuture() {
  const std::lock_guard lock(mutex_);
  if (!future_) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    if (settled_) settle(*future_, outputs_, error_);  // complete() found no future
  }
  return future_;
}

}  // namespace retinue
