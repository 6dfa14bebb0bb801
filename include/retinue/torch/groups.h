#pragma once

#include <chrono>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "retinue/collective/options.h"
#include "retinue/collective/split.h"
#include "retinue/collective/zero_first.h"
#include "retinue/torch/process_group.h"

/// Makes groups of some of a group's ranks, after torch.distributed.
///
/// Ranks are the parent's. All ranks of the parent make the same calls in the same order, members or not; non-members
/// get a null group.
///
/// Blocking: a collective of the parent, then until all members of the new group have come.
/// A group of backend gloo over several hosts has parts that use shared memory, if all of a part's ranks share it; the
/// parts' ranks meet at the store where the parent's ranks met.
/// Errors: UsageError, on all ranks, if one rank's arguments are invalid, and for a parent of a backend that isn't
/// Retinue's; PeerLost, TimeoutError; for parts of several hosts, also the store's errors.
/// After an error: the parent is still usable after a UsageError.
namespace retinue {

struct GroupOptions {
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;    ///< Unset: the parent's.
  std::optional<Waiting> waiting = std::nullopt;                      ///< Unset: the parent's.
  std::optional<std::chrono::nanoseconds> late_after = std::nullopt;  ///< Unset: the parent's.
  std::string group_name = {};                                        ///< Begins its name in errors.
};

/// Returns the group of these ranks, in the parent's order.
ProcessGroup new_group(const std::vector<int>& ranks, const ProcessGroup& parent, const GroupOptions& options = {},
                       std::source_location where = std::source_location::current());

/// Returns the group of this rank's colour; null for kNoColor.
ProcessGroup split_group(const ProcessGroup& parent, const SplitOptions& split = {}, const GroupOptions& options = {},
                         std::source_location where = std::source_location::current());

/// Makes groups of `group_size` consecutive ranks, and returns this rank's. Errors: also UsageError for a size that
/// doesn't divide the parent's.
ProcessGroup new_subgroups(int group_size, const ProcessGroup& parent, const GroupOptions& options = {},
                           std::source_location where = std::source_location::current());
/// Makes groups without common ranks, and returns the one that lists this rank.
ProcessGroup new_subgroups_by_enumeration(const std::vector<std::vector<int>>& ranks_per_subgroup,
                                          const ProcessGroup& parent, const GroupOptions& options = {},
                                          std::source_location where = std::source_location::current());

/// Returns the group of this rank's host, by shared memory; its ranks are local ranks. If the parent's backend is shm,
/// so that its ranks are of one host, the group has all of them.
ProcessGroup split_by_host(const ProcessGroup& parent, const GroupOptions& options = {},
                           std::source_location where = std::source_location::current());

/// Leaves the group and sets `group` to null; does nothing if it is null already. Calls that have not begun end with
/// Closed, as do all later calls through copies of `group`. The other ranks' waits for this rank end with PeerLost,
/// also those that begin later. Blocking: never, except for NCCL's end of work under way on GPUs. Threads: while no
/// other thread is in a call of the group. Errors: NCCL's c10::Error; the group is left all the same.
void destroy_process_group(ProcessGroup& group);

/// Runs a barrier that names the missing ranks to the ranks that came and, when they come, to the late ones; see
/// Communicator::monitored_barrier(). With a null group it does nothing.
/// After an error: the group is unusable; the ranks that came can make a new one from a parent that they belong to.
void monitored_barrier(const ProcessGroup& group, const MonitoredBarrierOptions& options = {},
                       std::source_location where = std::source_location::current());

namespace detail {
template <>
struct ZeroFirstOf<ProcessGroup> {
  static ZeroFirstGroup make(const ProcessGroup& group, CallSite site);
};
}  // namespace detail

}  // namespace retinue
