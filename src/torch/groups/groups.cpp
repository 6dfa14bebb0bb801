#include "retinue/torch/groups.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "retinue/base/error.h"
#include "retinue/launch/join_group.h"
#include "torch/backend/shm_backend.h"
#include "torch/gloo/gloo_backend.h"
#include "torch/groups/make_group.h"

namespace retinue {
namespace {

/// How a group is asked for.
struct Part {
  std::string_view call;
  OuterCall outer;
  /// Of a parent of several ranks that share memory,
  std::function<std::optional<JobGroup>(Communicator& parent)> split;
  /// of others,
  std::function<std::optional<detail::SplitPart>(const detail::SplitParent& parent)> choose;
  /// and whether the only rank of a parent of one is in it.
  std::function<bool()> has_only_rank;
};

ProcessGroup make_shm_part(const Part& part, ShmBackend& parent, const TensorBackend::Waits& waits,
                           const std::string& group_name, const std::source_location& where) {
  std::optional<JobGroup> members;
  const bool has_others =
      parent.use_communicator([&](Communicator& communicator) { members = part.split(communicator); });
  if (!has_others && part.has_only_rank()) members = parent.members();
  if (!members) return {};
  const std::string name = group_name.empty() ? members->name : group_name;
  if (members->memory) return make_group(c10::make_intrusive<ShmBackend>(*std::move(members), waits, where), name);
  return make_group(c10::make_intrusive<ShmBackend>(waits.timeout), name);  // Of a world of one without a job.
}

ProcessGroup make_gloo_part(const Part& part, GlooBackend& parent, const TensorBackend::Waits& waits,
                            const std::string& group_name, const std::source_location& where) {
  const auto members = part.choose(parent.split_parent(CallSite(where).inside(part.outer)));
  if (!members) return {};
  const GlooMeeting& meeting = parent.meeting();
  const std::string name = parent.name_of_part(members->name, members->ranks.front());
  return meet({.store = parent.store_of_part(members->ranks.front()),
               .world_size = static_cast<int>(members->ranks.size()),
               .rank = members->rank,
               .timeout = waits.timeout,
               .name = name},
              meeting.is_asked_for ? Connection::kGloo : Connection::kBest, waits,
              group_name.empty() ? name : group_name, where);
}

ProcessGroup make_part(const Part& part, const ProcessGroup& parent, const GroupOptions& options,
                       const std::source_location& where) {
  c10d::ProcessGroup& ranks = checked_group(part.call, parent);
  ShmBackend* const shm = ShmBackend::of(ranks);
  GlooBackend* const gloo = GlooBackend::of(ranks);
  if (shm == nullptr && gloo == nullptr)
    throw UsageError(c10::str(part.call, ": the parent's backend is ", ranks.getDefaultBackend()->getBackendName(),
                              ", but only groups of backend shm or gloo can be divided"));
  TensorBackend::Waits waits = TensorBackend::of(ranks)->waits();
  waits.timeout = options.timeout.value_or(waits.timeout);
  waits.waiting = options.waiting.value_or(waits.waiting);
  if (options.late_after) waits.late_after = options.late_after;
  if (waits.timeout <= std::chrono::milliseconds(0))
    throw UsageError(c10::str(part.call, ": the timeout must be greater than 0"));
  const ProcessGroup group = gloo != nullptr ? make_gloo_part(part, *gloo, waits, options.group_name, where)
                                             : make_shm_part(part, *shm, waits, options.group_name, where);
  const std::shared_ptr<Store>& nccl_store = TensorBackend::of(ranks)->nccl_store();
  if (group && nccl_store) add_nccl(group, nccl_store, where);
  return group;
}

void check_only_rank(std::string_view call, const std::vector<std::vector<int>>& groups) {
  int count = 0;
  for (const std::vector<int>& ranks : groups)
    for (const int rank : ranks)
      if (rank != 0 || ++count > 1)
        throw UsageError(c10::str(call, ": the parent only has rank 0, which can be listed once: ", ranks));
}

ProcessGroup make_listed(std::string_view call, OuterCall outer, const std::vector<std::vector<int>>& groups,
                         const ProcessGroup& parent, const GroupOptions& options, const std::source_location& where) {
  return make_part({.call = call,
                    .outer = outer,
                    .split = [&](Communicator& ranks) -> std::optional<JobGroup> {
                      return new_subgroups(ranks, groups, options.group_name, CallSite(where).inside(outer));
                    },
                    .choose =
                        [&](const detail::SplitParent& ranks) {
                          return detail::listed_part(call, ranks, groups, options.group_name);
                        },
                    .has_only_rank =
                        [&] {
                          check_only_rank(call, groups);
                          return std::any_of(groups.begin(), groups.end(),
                                             [](const auto& one) { return !one.empty(); });
                        }},
                   parent, options, where);
}

/// The first that is where this rank is.
int first_rank_of_host(const detail::SplitParent& ranks) {
  constexpr std::size_t kBytes = 128;
  std::string own = host_of_this_process();
  own.resize(kBytes);
  std::string all(kBytes * static_cast<std::size_t>(ranks.size), '\0');
  ranks.all_gather(own.data(), all.data(), kBytes);
  int first = 0;
  while (all.compare(static_cast<std::size_t>(first) * kBytes, kBytes, own) != 0) ++first;
  return first;
}

ProcessGroup make_of_color(OuterCall outer, const ProcessGroup& parent, const SplitOptions& options,
                           const GroupOptions& group, const std::source_location& where) {
  SplitOptions asked = options;
  if (!group.group_name.empty()) asked.name = group.group_name;
  return make_part(
      {.call = "split_group",
       .outer = outer,
       .split = [&](Communicator& ranks) { return split(ranks, asked, CallSite(where).inside(outer)); },
       .choose = [&](const detail::SplitParent& ranks) { return detail::split_part("split", ranks, asked); },
       .has_only_rank =
           [&] {
             if (options.color < kNoColor)
               throw UsageError(c10::str("split_group: color ", options.color, " must be kNoColor or at least 0"));
             return options.color != kNoColor;
           }},
      parent, group, where);
}

}  // namespace

ProcessGroup new_group(const std::vector<int>& ranks, const ProcessGroup& parent, const GroupOptions& options,
                       std::source_location where) {
  return make_listed("new_group", OuterCall::kNewGroup, {ranks}, parent, options, where);
}

ProcessGroup split_group(const ProcessGroup& parent, const SplitOptions& options, const GroupOptions& group,
                         std::source_location where) {
  return make_of_color(OuterCall::kSplitGroup, parent, options, group, where);
}

ProcessGroup new_subgroups(int group_size, const ProcessGroup& parent, const GroupOptions& options,
                           std::source_location where) {
  const int size = checked_group("new_subgroups", parent).getSize();
  if (group_size < 1 || size % group_size != 0)
    throw UsageError(
        c10::str("new_subgroups: a group of ", size, " ranks can't be divided into groups of ", group_size));
  std::vector<std::vector<int>> groups(static_cast<std::size_t>(size / group_size));
  for (int rank = 0; rank < size; ++rank) groups[static_cast<std::size_t>(rank / group_size)].push_back(rank);
  return make_listed("new_subgroups", OuterCall::kNewSubgroups, groups, parent, options, where);
}

ProcessGroup new_subgroups_by_enumeration(const std::vector<std::vector<int>>& ranks_per_subgroup,
                                          const ProcessGroup& parent, const GroupOptions& options,
                                          std::source_location where) {
  return make_listed("new_subgroups_by_enumeration", OuterCall::kNewSubgroupsByEnumeration, ranks_per_subgroup, parent,
                     options, where);
}

ProcessGroup split_by_host(const ProcessGroup& parent, const GroupOptions& options, std::source_location where) {
  int color = 0;
  if (GlooBackend* const gloo = GlooBackend::of(checked_group("split_by_host", parent)))
    color = first_rank_of_host(gloo->split_parent(CallSite(where).inside(OuterCall::kSplitByHost)));
  return make_of_color(OuterCall::kSplitByHost, parent, {.color = color}, options, where);
}

void destroy_process_group(ProcessGroup& group) {
  if (!group) return;
  const ProcessGroup left = std::exchange(group, {});
  // First: the others' waits end, whatever NCCL's end, which may wait for them, comes to.
  if (TensorBackend* const ours = TensorBackend::of(*left)) ours->shutdown();
  left->shutdown();
}

void abandon_process_group(const ProcessGroup& group) {
  if (!group) return;
  TensorBackend* const ours = TensorBackend::of(*group);
  if (ours == nullptr) return group->shutdown();
  ours->shutdown();
  if (ours->nccl_store()) static_cast<void>(new ProcessGroup(group));
}

void monitored_barrier(const ProcessGroup& group, const MonitoredBarrierOptions& options, std::source_location where) {
  if (!group) return;
  if (options.timeout && *options.timeout <= std::chrono::nanoseconds(0))
    throw UsageError("monitored_barrier: the timeout must be greater than 0; leave it out to use the group's");
  if (TensorBackend* const backend = TensorBackend::of(*group)) return backend->monitored_barrier(options, where);
  c10d::BarrierOptions asked;
  if (options.timeout) asked.timeout = std::chrono::ceil<std::chrono::milliseconds>(*options.timeout);
  group->monitoredBarrier(asked, options.wait_all_ranks);
}

detail::ZeroFirstGroup detail::ZeroFirstOf<ProcessGroup>::make(const ProcessGroup& group, CallSite site) {
  if (!group) return {};
  const auto tell = [group, site = site.inside(OuterCall::kZeroFirst)](void* data, std::size_t bytes) {
    at::Tensor status = at::from_blob(data, {static_cast<std::int64_t>(bytes)}, at::kByte);
    if (TensorBackend* const backend = TensorBackend::of(*group)) {
      backend->broadcast({status}, 0, {.async_op = false, .site = site});
      return;
    }
    std::vector<at::Tensor> tensors{status};
    group->broadcast(tensors)->wait();
  };
  return {.rank = group->getRank(), .size = group->getSize(), .name = group->getGroupName(), .broadcast = tell};
}

}  // namespace retinue
