#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace retinue {

/// How a member waits for the others. Members may use different settings. If ranks outnumber CPUs, none spins: a
/// waiting rank yields its CPU for ten times as long, or sleeps.
enum class Waiting : std::uint8_t {
  kLatency,   ///< Spins for 2 ms before it sleeps: for a CPU per rank, and ranks that come at different times.
  kBalanced,  ///< Spins for 50 us, a few times the cost of a wake-up.
  kPolite,    ///< Sleeps at once: leaves the CPUs to others; each wait may take the 20 us of a wake-up.
};

struct CommunicatorOptions {
  /// Longest wait of any call for the other members. Default: PyTorch's.
  std::chrono::nanoseconds timeout = std::chrono::minutes(30);
  Waiting waiting = Waiting::kBalanced;
  /// The duration after which a wait's late ranks are reported on standard error: once for all waiting ranks, and again
  /// after times that double. 0: never. Default: the value of RETINUE_LATE_AFTER_S, in seconds, or else 10 s.
  std::optional<std::chrono::nanoseconds> late_after = std::nullopt;
  /// The last-level cache (L3) and the memory node (NUMA) that this member runs at, as numbers that are the same on all
  /// members that share one. Default: the ones that all CPUs on which it may run have in common, as the kernel reports;
  /// a member that may move between several counts as having none. Set them where the kernel hides the machine.
  std::optional<int> cache_domain = std::nullopt;
  std::optional<int> memory_node = std::nullopt;
};

struct MonitoredBarrierOptions {
  /// Longest wait for the others; if unset, the group's timeout.
  std::optional<std::chrono::nanoseconds> timeout = std::nullopt;
  /// If true, the barrier keeps waiting after a member is lost, so that the error names all missing ranks. If false, it
  /// ends at once.
  bool wait_all_ranks = false;
};

}  // namespace retinue
