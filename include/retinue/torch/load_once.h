#pragma once

#include <concepts>
#include <functional>
#include <source_location>
#include <type_traits>
#include <utility>

#include "retinue/torch/groups.h"
#include "retinue/torch/objects.h"

namespace retinue {
namespace detail {

/// Calls `load` on the first rank of each host, and then `share` on all ranks, with the host's group.
void load_then_share(const ProcessGroup& group, const std::function<void()>& load,
                     const std::function<void(const ProcessGroup& host)>& share, std::source_location where);

}  // namespace detail

/// Returns what `load()` returns on the first rank of this rank's host. The other ranks of the host get it as the same
/// memory: tensors are moved to job memory, where the host has them once, however many ranks it has. Ranks of a host
/// that are of different jobs, because another launcher started each by itself, have no such memory: each of them
/// loads.
///
/// `load` returns what can be sent: tensors, and structs, vectors and maps of them (tensor_archive.h). No rank may
/// write to the tensors while others read them. Blocking: a collective of `group`; waits until the host's first rank
/// has loaded, at most the group's timeout. Errors: what `load` throws, on that rank, and UsageError with its text on
/// the others of its host; PeerLost, TimeoutError. After an error: the group is usable, unless a rank was lost.
template <std::invocable Load>
std::invoke_result_t<Load> load_once_per_host(const ProcessGroup& group, Load load,
                                              std::source_location where = std::source_location::current()) {
  std::invoke_result_t<Load> loaded{};
  detail::load_then_share(
      group, [&] { loaded = load(); }, [&](const ProcessGroup& host) { broadcast_object(loaded, host, 0, where); },
      where);
  return loaded;
}

}  // namespace retinue
