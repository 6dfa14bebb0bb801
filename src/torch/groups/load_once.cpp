#include "retinue/torch/load_once.h"

#include <exception>

#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "retinue/ipc/job_memory.h"
#include "torch/groups/failure.h"

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

}  // namespace

void load_then_share(const ProcessGroup& group, const std::function<void()>& load,
                     const std::function<void(const ProcessGroup& host)>& share, std::source_location where) {
  const GroupOfHost host(group, where);
  if (!is_of_own_job(host.get())) {
    load();
    return;
  }
  const bool loads = host.get()->getRank() == 0;
  Failure failure;
  if (loads) failure = failure_of(load);
  broadcast_object(failure, host.get(), 0, where);
  if (failure.exception) std::rethrow_exception(failure.exception);
  if (failure) throw UsageError("load_once_per_host: the first rank of this host failed to load: " + failure.text);
  share(host.get());
}

}  // namespace retinue::detail
