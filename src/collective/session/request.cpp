#include "retinue/collective/request.h"

#include <algorithm>
#include <vector>

#include "collective/session/operation.h"
#include "retinue/base/error.h"
#include "retinue/ipc/detail/blocked_time.h"

namespace retinue {

/// A copy, because a callback may drop the request that is asked.
std::shared_ptr<Operation> Request::checked() const {
  if (!operation_) throw UsageError("this Request is empty: it was default-constructed or moved from");
  return operation_;
}

bool Request::done() const {
  const std::shared_ptr<Operation> operation = checked();
  if (!operation->done()) operation->engine().advance(*operation);
  operation->call_back();
  return operation->done();
}

bool Request::under_way() const {
  return checked()->is_under_way();
}

void Request::wait() const {
  wait_for(std::chrono::nanoseconds::max());
}

bool Request::wait_for(std::chrono::nanoseconds time) const {
  const std::shared_ptr<Operation> operation = checked();
  if (!operation->done()) {
    const detail::BlockedScope blocked;
    if (!operation->engine().wait(*operation, time)) return false;
  }
  operation->call_back();
  if (operation->error()) std::rethrow_exception(operation->error());
  return true;
}

std::optional<std::size_t> Request::wait_any(std::span<const Request> requests, std::chrono::nanoseconds time) {
  return wait_any(requests, time, nullptr);
}

std::optional<std::size_t> Request::wait_any(std::span<const Request> requests, const Request& needed,
                                             std::chrono::nanoseconds time) {
  return wait_any(requests, time, needed.checked().get());
}

std::optional<std::size_t> Request::wait_any(std::span<const Request> requests, std::chrono::nanoseconds time,
                                             Operation* needed) {
  if (requests.empty()) throw UsageError("wait_any: the list of requests is empty");
  std::vector<std::shared_ptr<Operation>> held;  // A callback may drop requests.
  std::vector<Operation*> operations;
  for (const Request& request : requests) {
    held.push_back(request.checked());
    operations.push_back(held.back().get());
    if (operations.back()->engine_number() != operations.front()->engine_number())
      throw UsageError("wait_any: the requests belong to different communicators");
  }
  if (needed != nullptr && std::find(operations.begin(), operations.end(), needed) == operations.end())
    throw UsageError("wait_any: the needed request is not in the list of requests");
  if (operations.front()->done() && !OperationDriver::is_there(operations.front()->engine_number())) {
    for (const auto& operation : held) operation->call_back();
    return 0;
  }
  const detail::BlockedScope blocked;
  return operations.front()->engine().wait_any(operations, needed, time);
}

std::exception_ptr Request::exception() const {
  return checked()->error();
}

void Request::then(std::function<void()> callback) const {
  if (!callback) throw UsageError("Request::then: the callback is empty");
  const std::shared_ptr<Operation> operation = checked();
  operation->add_callback(std::move(callback));
  if (operation->done()) operation->call_back();
}

Received Request::received() const {
  return checked()->received;
}

}  // namespace retinue
