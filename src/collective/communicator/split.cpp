#include "retinue/collective/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/char_field.h"
#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"

namespace retinue {

using detail::SplitParent;
using detail::SplitPart;

namespace {

/// What a member tells the others of the group that it wants.
struct SplitNotice {
  std::uint32_t failed = 0;  ///< It throws an error of its own.
  std::int32_t color = kNoColor;
  std::int32_t key = 0;
  std::uint64_t lists = 0;  ///< A hash of all lists; the same on all members.
  char name[64] = {};
};

/// One member's part in a split.
class Splitting {
 public:
  Splitting(std::string_view call, const SplitParent& parent) : call_(call), parent_(parent) {}

  void by_color(const SplitOptions& options) {
    own_.color = options.color;
    own_.key = options.key;
    if (options.color < kNoColor) fail(fmt::format("color {} must be kNoColor or at least 0", options.color));
  }

  void by_lists(std::span<const std::vector<int>> groups) {
    std::vector<bool> is_listed(static_cast<std::size_t>(parent_.size));
    for (std::size_t i = 0; i < groups.size(); ++i) {
      hash(groups[i].size());
      std::vector<int> sorted = groups[i];
      std::sort(sorted.begin(), sorted.end());
      for (const int rank : sorted) list(rank, static_cast<int>(i), is_listed);
    }
  }

  void set_name(const std::string& name) {
    if (name.size() >= sizeof own_.name)
      return fail(fmt::format("the name \"{}\" has {} bytes, at most {} are possible", name, name.size(),
                              sizeof own_.name - 1));
    std::memcpy(own_.name, name.data(), name.size());
  }

  std::optional<SplitPart> run() {
    std::vector<SplitNotice> all(static_cast<std::size_t>(parent_.size));
    parent_.all_gather(&own_, all.data(), sizeof own_);
    check(all);
    if (own_.color == kNoColor) return std::nullopt;
    return part_of(all);
  }

 private:
  void fail(const std::string& text) {
    own_.failed = 1;
    if (error_.empty()) error_ = text;
  }

  void hash(std::uint64_t word) { own_.lists = (own_.lists ^ word) * 0x9e3779b97f4a7c15u + 1; }

  void list(int rank, int color, std::vector<bool>& is_listed) {
    hash(static_cast<std::uint64_t>(rank) + 1);
    if (rank < 0 || rank >= parent_.size)
      return fail(fmt::format("rank {} is outside of the parent's [0, {})", rank, parent_.size));
    const auto index = static_cast<std::size_t>(rank);
    if (is_listed[index]) return fail(fmt::format("rank {} is listed twice", rank));
    is_listed[index] = true;
    if (rank == parent_.rank) own_.color = color;
  }

  [[noreturn]] void refuse(const std::string& text) const {
    throw UsageError(fmt::format("{} of group \"{}\": {}", call_, parent_.name, text));
  }

  void check(const std::vector<SplitNotice>& all) const {
    if (own_.failed != 0) refuse(error_);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank].failed != 0)
        refuse(fmt::format("rank {} passed an invalid argument; see the error of that rank", rank));
      if (all[rank].lists != all[0].lists)
        refuse(fmt::format("ranks 0 and {} passed different lists of ranks; all members must pass the same", rank));
    }
  }

  SplitPart part_of(const std::vector<SplitNotice>& all) const {
    SplitPart part;
    for (int rank = 0; rank < parent_.size; ++rank)
      if (all[static_cast<std::size_t>(rank)].color == own_.color) part.ranks.push_back(rank);
    std::stable_sort(part.ranks.begin(), part.ranks.end(), [&](int one, int other) {
      return all[static_cast<std::size_t>(one)].key < all[static_cast<std::size_t>(other)].key;
    });
    const auto own = std::find(part.ranks.begin(), part.ranks.end(), parent_.rank);
    part.rank = static_cast<int>(own - part.ranks.begin());
    part.name = text_of(all[static_cast<std::size_t>(part.ranks.front())].name);
    return part;
  }

  std::string_view call_;
  const SplitParent& parent_;
  SplitNotice own_;
  std::string error_;
};

SplitParent parent_of(Communicator& members, const CallSite& site) {
  if (!members.shares_memory())
    throw UsageError(fmt::format(
        "the ranks of group \"{}\" share no memory, so it can't be split: make a group of the ranks of one host",
        members.group().name));
  return {.rank = members.rank(),
          .size = members.size(),
          .name = members.group().name,
          .all_gather = [&members, site](const void* own, void* all, std::size_t bytes) {
            members.all_gather(own, all, bytes, site);
          }};
}

std::optional<JobGroup> group_of(const Communicator& parent, const std::optional<SplitPart>& part) {
  if (!part) return std::nullopt;
  JobGroup group{.memory = parent.group().memory,
                 .name = detail::name_of_part(parent, part->name, part->ranks.front()),
                 .rank = part->rank,
                 .process_slots = {}};
  for (const int rank : part->ranks)
    group.process_slots.push_back(parent.group().process_slots[static_cast<std::size_t>(rank)]);
  return group;
}

}  // namespace

std::optional<SplitPart> detail::split_part(std::string_view call, const SplitParent& parent,
                                            const SplitOptions& options) {
  Splitting splitting(call, parent);
  splitting.by_color(options);
  splitting.set_name(options.name);
  return splitting.run();
}

std::optional<SplitPart> detail::listed_part(std::string_view call, const SplitParent& parent,
                                             std::span<const std::vector<int>> groups, const std::string& name) {
  Splitting splitting(call, parent);
  splitting.by_lists(groups);
  splitting.set_name(name);
  return splitting.run();
}

std::optional<JobGroup> split(Communicator& parent, const SplitOptions& options, CallSite site) {
  return group_of(parent, detail::split_part("split", parent_of(parent, site.inside(OuterCall::kSplit)), options));
}

std::optional<JobGroup> new_group(Communicator& parent, std::span<const int> ranks, const std::string& name,
                                  CallSite site) {
  const std::vector<int> group(ranks.begin(), ranks.end());
  return group_of(parent, detail::listed_part("new_group", parent_of(parent, site.inside(OuterCall::kNewGroup)),
                                              {&group, 1}, name));
}

std::optional<JobGroup> new_subgroups(Communicator& parent, std::span<const std::vector<int>> groups,
                                      const std::string& name, CallSite site) {
  return group_of(parent, detail::listed_part("new_subgroups", parent_of(parent, site.inside(OuterCall::kNewSubgroups)),
                                              groups, name));
}

}  // namespace retinue
