#include "retinue/torch/groups.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "retinue/base/error.h"
#include "torch/make_group.h"
#include "torch/shm_backend.h"

namespace retinue {
namespace {

/// How a group is asked for.
struct Part {
  std::string_view call;
  /// Of a parent of several ranks,
  std::function<std::optional<JobGroup>(Communicator& parent)> split;
  /// and whether the only rank of a parent of one is in it.
  std::function<bool()> has_only_rank;
};

ShmBackend& parent_of(std::string_view call, const ProcessGroup& parent) {
  c10d::ProcessGroup& ranks = checked_group(call, parent);
  ShmBackend* const backend = ShmBackend::of(ranks);
  if (backend == nullptr)
    throw UsageError(c10::str(call, ": the parent's backend is ", ranks.getDefaultBackend()->getBackendName(),
                              ", and groups are made of groups of backend shm"));
  return *backend;
}

ProcessGroup make_part(const Part& part, const ProcessGroup& parent, const GroupOptions& options) {
  ShmBackend& backend = parent_of(part.call, parent);
  ShmBackend::Waits waits = backend.waits();
  waits.timeout = options.timeout.value_or(waits.timeout);
  waits.waiting = options.waiting.value_or(waits.waiting);
  if (options.late_after) waits.late_after = options.late_after;
  if (waits.timeout <= std::chrono::milliseconds(0))
    throw UsageError(c10::str(part.call, ": the timeout must be longer than nothing"));
  std::optional<JobGroup> members;
  const bool has_others =
      backend.use_communicator([&](Communicator& communicator) { members = part.split(communicator); });
  if (!has_others && part.has_only_rank()) members = backend.members();
  if (!members) return {};
  const std::string name = options.group_name.empty() ? members->name : options.group_name;
  if (members->memory) return make_group(c10::make_intrusive<ShmBackend>(std::move(*members), waits), name);
  return make_group(c10::make_intrusive<ShmBackend>(waits.timeout), name);  // Of a world of one without a job.
}

void check_only_rank(std::string_view call, const std::vector<std::vector<int>>& groups) {
  int count = 0;
  for (const std::vector<int>& ranks : groups)
    for (const int rank : ranks)
      if (rank != 0 || ++count > 1)
        throw UsageError(c10::str(call, ": the parent has rank 0 alone, which can be listed once: ", ranks));
}

ProcessGroup make_listed(std::string_view call, const std::vector<std::vector<int>>& groups, const ProcessGroup& parent,
                         const GroupOptions& options, const std::source_location& where) {
  return make_part({.call = call,
                    .split = [&](Communicator& ranks) -> std::optional<JobGroup> {
                      return new_subgroups(ranks, groups, options.group_name, where);
                    },
                    .has_only_rank =
                        [&] {
                          check_only_rank(call, groups);
                          return std::any_of(groups.begin(), groups.end(),
                                             [](const auto& one) { return !one.empty(); });
                        }},
                   parent, options);
}

}  // namespace

ProcessGroup new_group(const std::vector<int>& ranks, const ProcessGroup& parent, const GroupOptions& options,
                       std::source_location where) {
  return make_listed("new_group", {ranks}, parent, options, where);
}

ProcessGroup split_group(const ProcessGroup& parent, const SplitOptions& options, const GroupOptions& group,
                         std::source_location where) {
  SplitOptions asked = options;
  if (!group.group_name.empty()) asked.name = group.group_name;
  return make_part(
      {.call = "split_group",
       .split = [&](Communicator& ranks) { return split(ranks, asked, where); },
       .has_only_rank =
           [&] {
             if (options.color < kNoColor)
               throw UsageError(c10::str("split_group: color ", options.color, " is neither kNoColor nor at least 0"));
             return options.color != kNoColor;
           }},
      parent, group);
}

ProcessGroup new_subgroups(int group_size, const ProcessGroup& parent, const GroupOptions& options,
                           std::source_location where) {
  const int size = parent_of("new_subgroups", parent).getSize();
  if (group_size < 1 || size % group_size != 0)
    throw UsageError(c10::str("new_subgroups: a group of ", size, " can't be cut into groups of ", group_size));
  std::vector<std::vector<int>> groups(static_cast<std::size_t>(size / group_size));
  for (int rank = 0; rank < size; ++rank) groups[static_cast<std::size_t>(rank / group_size)].push_back(rank);
  return make_listed("new_subgroups", groups, parent, options, where);
}

ProcessGroup new_subgroups_by_enumeration(const std::vector<std::vector<int>>& ranks_per_subgroup,
                                          const ProcessGroup& parent, const GroupOptions& options,
                                          std::source_location where) {
  return make_listed("new_subgroups_by_enumeration", ranks_per_subgroup, parent, options, where);
}

ProcessGroup split_by_host(const ProcessGroup& parent, const GroupOptions& options, std::source_location where) {
  parent_of("split_by_host", parent);
  return split_group(parent, {.color = 0}, options, where);
}

void destroy_process_group(ProcessGroup& group) {
  if (!group) return;
  group->shutdown();
  group.reset();
}

void monitored_barrier(const ProcessGroup& group, const MonitoredBarrierOptions& options, std::source_location where) {
  if (!group) return;
  if (options.timeout && *options.timeout <= std::chrono::nanoseconds(0))
    throw UsageError("monitored_barrier: the timeout must be longer than nothing; leave it out to have the group's");
  if (ShmBackend* const backend = ShmBackend::of(*group)) {
    backend->use_communicator([&](Communicator& ranks) { ranks.monitored_barrier(options, where); });
    return;
  }
  c10d::BarrierOptions asked;
  if (options.timeout) asked.timeout = std::chrono::ceil<std::chrono::milliseconds>(*options.timeout);
  group->monitoredBarrier(asked, options.wait_all_ranks);
}

detail::ZeroFirstGroup detail::ZeroFirstOf<ProcessGroup>::make(const ProcessGroup& group, CallSite site) {
  if (!group) return {};
  const auto tell = [group, site](void* data, std::size_t bytes) {
    at::Tensor status = at::from_blob(data, {static_cast<std::int64_t>(bytes)}, at::kByte);
    if (ShmBackend* const backend = ShmBackend::of(*group)) {
      backend->broadcast({status}, 0, {.async_op = false, .site = site});
      return;
    }
    std::vector<at::Tensor> tensors{status};
    group->broadcast(tensors)->wait();
  };
  return {.rank = group->getRank(), .size = group->getSize(), .name = group->getGroupName(), .broadcast = tell};
}

}  // namespace retinue
