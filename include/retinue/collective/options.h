#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace retinue {

/// How a member waits for the others. Members may differ. Where ranks outnumber CPUs nobody spins: who waits hands its
/// CPU on for ten times as long, or sleeps.
enum class Waiting : std::uint8_t {
  kLatency,   ///< Spins for 2 ms before it sleeps: a CPU for each rank, and ranks that come at different times.
  kBalanced,  ///< Spins for 50 us, a few times what a wake-up costs.
  kPolite,    ///< Sleeps at once: the CPUs are others', and each wait may take the 20 us of a wake-up.
};

struct CommunicatorOptions {
  /// Longest wait of any call for the other members. Default: PyTorch's.
  std::chrono::nanoseconds timeout = std::chrono::minutes(30);
  Waiting waiting = Waiting::kBalanced;
  /// A wait that has taken so long has its late ranks reported on standard error, once for all that wait, and again
  /// after times that double; 0: never. Default: what RETINUE_LATE_AFTER_S says, in seconds, or else 10 s.
  std::optional<std::chrono::nanoseconds> late_after = std::nullopt;
  /// The last cache (L3) and the memory node (NUMA) that this member runs at, by numbers that are the same on all who
  /// share one. Without them: those that all CPUs have in common on which it may run, as the kernel tells; a member
  /// that may move between several counts as at none. To be given where the kernel hides the machine.
  std::optional<int> cache_domain = std::nullopt;
  std::optional<int> memory_node = std::nullopt;
};

struct MonitoredBarrierOptions {
  /// Longest wait for the others; none: the group's.
  std::optional<std::chrono::nanoseconds> timeout = std::nullopt;
  /// true: goes on waiting when a member is lost, so that the error names all that don't come; false: it ends at once.
  bool wait_all_ranks = false;
};

}  // namespace retinue
