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

/// Makes groups of some of a communicator's members, from which to make communicators.
///
/// Blocking: each call is one collective of the parent, which all of its members make. Members of several groups
/// therefore make the calls for these in one order.
/// Errors: as Communicator's calls. If one member's arguments are invalid, all members throw a UsageError that names
/// it.
/// After an error: the parent is still usable after a UsageError.
/// Cost: one small all_gather of the parent. Making the Communicator from the group costs more, as always.
namespace retinue {

class Communicator;

/// The colour of a member that joins none of the groups.
inline constexpr int kNoColor = -1;

struct SplitOptions {
  int color = 0;          ///< Members of one colour form a group; kNoColor, or at least 0.
  int key = 0;            ///< Their order in the group; members with equal keys keep the parent's order.
  std::string name = {};  ///< Begins the group's name in errors, at most 63 bytes; the first member's is used.
};

/// Returns the group of this member's colour; nothing for kNoColor.
std::optional<JobGroup> split(Communicator& parent, const SplitOptions& options = {}, CallSite site = {});

/// Returns the group of these ranks of the parent, in the given order; nothing for a member that isn't listed.
std::optional<JobGroup> new_group(Communicator& parent, std::span<const int> ranks, const std::string& name = {},
                                  CallSite site = {});

/// Returns the group that lists this member, of several groups without common ranks; nothing if none lists it.
std::optional<JobGroup> new_subgroups(Communicator& parent, std::span<const std::vector<int>> groups,
                                      const std::string& name = {}, CallSite site = {});

namespace detail {

/// The members that split, independent of how they are connected.
struct SplitParent {
  int rank = 0;
  int size = 1;
  std::string name = {};
  /// Gives each member's `bytes` bytes to all, in rank order.
  std::function<void(const void* own, void* all, std::size_t bytes)> all_gather = {};
};

/// The part that this member is in.
struct SplitPart {
  std::vector<int> ranks = {};  ///< Ranks in the parent, in the part's order.
  int rank = 0;                 ///< This member's rank in the part.
  std::string name = {};        ///< The first member's name for the part.
};

/// Do the same as split() and new_subgroups(). `call` is the name of the call in errors.
std::optional<SplitPart> split_part(std::string_view call, const SplitParent& parent, const SplitOptions& options);
std::optional<SplitPart> listed_part(std::string_view call, const SplitParent& parent,
                                     std::span<const std::vector<int>> groups, const std::string& name);

}  // namespace detail
}  // namespace retinue
