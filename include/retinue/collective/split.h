#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "retinue/collective/call.h"
#include "retinue/ipc/job_group.h"

/// Groups of some of a communicator's members, to make communicators of.
///
/// Blocking: each is one collective of the parent, all of whose members make the same call; so members of several
/// groups make these in one order.
/// Errors: as Communicator's calls. UsageError for what makes no sense on one member is thrown on all, and names it.
/// After an error: the parent can be used on after a UsageError.
/// Cost: one small all_gather of the parent's; the Communicator that is made of the group costs more, as any does.
namespace retinue {

class Communicator;

/// The colour of a member that is to be in none of the groups.
inline constexpr int kNoColor = -1;

struct SplitOptions {
  int color = 0;          ///< Members of one colour are a group; kNoColor, or at least 0.
  int key = 0;            ///< Their order in it; those of one key are in the parent's order.
  std::string name = {};  ///< Heads the group's name in errors, at most 63 bytes; its first member's counts.
};

/// The group of this member's colour; none for kNoColor.
std::optional<JobGroup> split(Communicator& parent, const SplitOptions& options = {}, CallSite site = {});

/// The group of these ranks of the parent's, in their order there; none for a member that isn't listed.
std::optional<JobGroup> new_group(Communicator& parent, std::span<const int> ranks, const std::string& name = {},
                                  CallSite site = {});

/// The one of several groups, which have no rank in common, that lists this member; none if no one does.
std::optional<JobGroup> new_subgroups(Communicator& parent, std::span<const std::vector<int>> groups,
                                      const std::string& name = {}, CallSite site = {});

namespace detail {

/// Members that split, however they are connected.
struct SplitParent {
  int rank = 0;
  int size = 1;
  std::string name = {};
  /// Gives each member's `bytes` bytes to all, in rank order.
  std::function<void(const void* own, void* all, std::size_t bytes)> all_gather = {};
};

/// The part of them that this member is in.
struct SplitPart {
  std::vector<int> ranks = {};  ///< The parent's, in the part's order.
  int rank = 0;                 ///< This member's in the part.
  std::string name = {};        ///< As its first member has it.
};

/// As split() and new_subgroups(); `call` is what errors say was called.
std::optional<SplitPart> split_part(std::string_view call, const SplitParent& parent, const SplitOptions& options);
std::optional<SplitPart> listed_part(std::string_view call, const SplitParent& parent,
                                     std::span<const std::vector<int>> groups, const std::string& name);

}  // namespace detail
}  // namespace retinue
