#pragma once

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "collective/call/call.h"
#include "collective/diagnosis/call_log.h"
#include "collective/engine/call_notice.h"
#include "collective/engine/exchange_parts.h"
#include "collective/engine/late_by_store.h"
#include "retinue/base/error.h"
#include "retinue/collective/engine.h"
#include "retinue/collective/options.h"

namespace retinue {

/// Collectives between ranks that share no memory: the engine moves the bytes, the core's kernels reduce them.
///
/// Each call begins with what all ranks are about to call, so that a mismatch is known on all of them at once; that
/// alone is a barrier.
class EngineGroup {
 public:
  /// Errors: UsageError without an engine, or for a rank that isn't in [0, size).
  EngineGroup(std::unique_ptr<Engine> engine, const EngineMembers& members, const CommunicatorOptions& options);
  ~EngineGroup();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(size_); }
  void set_timeout(std::chrono::nanoseconds timeout);
  void run(const CollectiveCall& what, CallSite site) { run(what, site, WhenLost::kEnd); }
  void monitored_barrier(const MonitoredBarrierOptions& options, CallSite site);

 private:
  /// Whether a call in which a rank is lost waits for the others to come all the same, to say which don't.
  enum class WhenLost { kEnd, kAwaitAll };

  void run(const CollectiveCall& what, CallSite site, WhenLost when_lost);
  std::exception_ptr failure_of(const PeerLost& error, WhenLost when_lost);
  void carry_out(const Call& call);
  /// As "rank 0 waits in its 4th call, barrier, at train.cpp:88".
  std::string own_call() const;
  /// That, as errors begin.
  std::string head() const;
  /// As "after 3 calls, the last barrier at train.cpp:88".
  std::string history_of(int rank) const;
  std::string last_seen(const std::vector<int>& ranks) const;
  LateByStore::Wait wait() const;
  /// Whether one of the ranks gives or takes parts of several sizes.
  bool meet(const Call& call);
  void check_sizes(const Call& call);
  void reduce(const Call& call);
  /// `output`: null where this rank takes nothing; also below.
  void reduce_whole(const Call& call, ConstBytes input, std::byte* output);
  void reduce_by_each(const Call& call, ConstBytes input, int sources, std::byte* output);
  void reduce_in_slices(const Call& call, ConstBytes input, std::byte* output);
  /// `sources` arrays, each of `stride` bytes, one behind the other.
  void reduce_arrays(const Call& call, const std::byte* inputs, std::size_t stride, int sources, std::byte* output,
                     std::size_t bytes);
  /// Whether a rank's function threw.
  void exchange_throws();

  std::unique_ptr<Engine> engine_;
  std::string name_;
  int rank_;
  std::size_t size_;
  PartExchange parts_;
  CallLog log_;
  LateByStore late_;
  std::chrono::nanoseconds timeout_;
  pid_t owner_ = getpid();
  std::uint64_t sequence_ = 0;
  const Call* call_ = nullptr;  ///< Under way, since
  LateByStore::Clock::time_point begin_;
  bool have_met_ = false;  ///< All ranks in that call.
  std::exception_ptr failure_;
  // Of one call, kept for the next one.
  std::exception_ptr thrown_;  ///< By the call's function: the others wait for the bytes all the same.
  std::vector<CallNotice> notices_;
  std::vector<CallNotice> last_notices_;  ///< Of the call before it.
  std::vector<double> factors_;
  std::vector<const void*> arrays_;
  std::vector<std::byte> others_;
  std::vector<std::byte> result_;
  std::vector<std::byte> packed_;
};

}  // namespace retinue
