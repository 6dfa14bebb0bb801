#include "retinue/torch/load_once.h"

#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>

#include <exception>
#include <string>
#include <typeinfo>

#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "retinue/ipc/job_memory.h"

namespace retinue::detail {
namespace {

/// A group for the time of a call.
class GroupOfHost {
 public:
  GroupOfHost(const ProcessGroup& parent, std::source_location where) : group_(split_by_host(parent, {}, where)) {}
  ~GroupOfHost() { destroy_process_group(group_); }
  GroupOfHost(const GroupOfHost&) = delete;
  GroupOfHost& operator=(const GroupOfHost&) = delete;

  const ProcessGroup& get() const { return group_; }

 private:
  ProcessGroup group_;
};

/// Whether the group's ranks can send each other what is in job memory.
bool is_of_own_job(const ProcessGroup& group) {
  bool is_own = false;
  use_communicator("load_once_per_host", group, [&](const Communicator& ranks) {
    const JobMemory* const memory = ranks.group().memory.get();
    is_own = memory != nullptr && memory == JobMemory::current_or_null();
  });
  return is_own;
}

std::string text_of_exception(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return c10::demangle(typeid(error).name()) + ": " + error.what();
  } catch (...) {
    return "something that is no std::exception";
  }
}

}  // namespace

void load_then_share(const ProcessGroup& group, const std::function<void()>& load,
                     const std::function<void(const ProcessGroup& host)>& share, std::source_location where) {
  const GroupOfHost host(group, where);
  if (!is_of_own_job(host.get())) {
    load();
    return;
  }
  const bool loads = host.get()->getRank() == 0;
  std::exception_ptr exception;
  std::string problem;
  if (loads) {
    try {
      load();
    } catch (...) {
      exception = std::current_exception();
      problem = text_of_exception(exception);
    }
  }
  broadcast_object(problem, host.get(), 0, where);
  if (exception) std::rethrow_exception(exception);
  if (!problem.empty()) throw UsageError("load_once_per_host: the first rank of this host failed to load: " + problem);
  share(host.get());
}

}  // namespace retinue::detail
