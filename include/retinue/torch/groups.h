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

/// Groups of some of a group's ranks, after torch.distributed.
///
/// Ranks are the parent's. All ranks of the parent make the same calls in the same order, members or not; those that
/// are none get a null group.
///
/// Blocking: a collective of the parent's, then until all members of the new group are there.
/// A group of backend gloo, of several hosts, has its parts by shared memory where all of their ranks have the same;
/// they meet at the store where the parent's ranks met.
/// Errors: UsageError, on all ranks, for what makes no sense on one of them, and for a parent of a backend that isn't
/// Retinue's; PeerLost, TimeoutError; of parts of several hosts also the store's.
/// After an error: the parent can be used on after a UsageError.
namespace retinue {

struct GroupOptions {
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;    ///< None: the parent's.
  std::optional<Waiting> waiting = std::nullopt;                      ///< None: the parent's.
  std::optional<std::chrono::nanoseconds> late_after = std::nullopt;  ///< None: the parent's.
  std::string group_name = {};                                        ///< Heads its name in errors.
};

/// The group of these ranks, in the parent's order.
ProcessGroup new_group(const std::vector<int>& ranks, const ProcessGroup& parent, const GroupOptions& options = {},
                       std::source_location where = std::source_location::current());

/// The group of this rank's colour; null for kNoColor.
ProcessGroup split_group(const ProcessGroup& parent, const SplitOptions& split = {}, const GroupOptions& options = {},
                         std::source_location where = std::source_location::current());

/// Of groups of `group_size` ranks that follow each other: this rank's. Errors: also UsageError for a size that doesn't
/// divide the parent's.
ProcessGroup new_subgroups(int group_size, const ProcessGroup& parent, const GroupOptions& options = {},
                           std::source_location where = std::source_location::current());
/// Of groups that have no rank in common, the one that lists this rank.
ProcessGroup new_subgroups_by_enumeration(const std::vector<std::vector<int>>& ranks_per_subgroup,
                                          const ProcessGroup& parent, const GroupOptions& options = {},
                                          std::source_location where = std::source_location::current());

/// The group of this rank's host, by shared memory; its ranks are local ranks. Of a group of backend shm, whose ranks
/// are of one host, it is a group of all.
ProcessGroup split_by_host(const ProcessGroup& parent, const GroupOptions& options = {},
                           std::source_location where = std::source_location::current());

/// Leaves the group, and makes `group` null; nothing where it is null already. Calls that had not begun end with
/// Closed, as do all later ones through copies of `group`. The others' waits for this rank end with PeerLost; so do
/// those of ranks that come later. Blocking: never, but for NCCL's end of what is under way on GPUs. Threads: while no
/// other thread is in a call of the group. Errors: c10::Error of NCCL's, and the group is left all the same.
void destroy_process_group(ProcessGroup& group);

/// A barrier that says which ranks did not come, to those that came and, when they come, to those; see
/// Communicator::monitored_barrier(). With a null group nothing.
/// After an error: the group can't be used on; the ranks that came can make a new one of a parent that they are in.
void monitored_barrier(const ProcessGroup& group, const MonitoredBarrierOptions& options = {},
                       std::source_location where = std::source_location::current());

namespace detail {
template <>
struct ZeroFirstOf<ProcessGroup> {
  static ZeroFirstGroup make(const ProcessGroup& group, CallSite site);
};
}  // namespace detail

}  // namespace retinue
