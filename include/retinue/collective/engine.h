#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "retinue/collective/call.h"

namespace retinue {

class JobMemory;
class Store;

/// An engine moves bytes between ranks that share no memory, for a Communicator: by gloo, MPI, or a custom network.
///
/// All ranks make the same calls in the same order, with sizes that fit. A communicator makes one call at a time.
/// Blocking: until the caller's result has arrived and its input may be changed; at most the timeout.
/// Errors: PeerLost and TimeoutError, whose texts continue the sentence "rank 0 waits in its 4th call, barrier at
/// a.cpp:7, and", or others. All of them end the group's use of the engine.
class Engine {
 public:
  virtual ~Engine() = default;

  /// Copies rank r's input to part r of every output. Shape: all inputs have the same size, at least a byte.
  virtual void all_gather(ConstBytes input, Bytes output) = 0;
  /// Copies part r of rank s's input to part s of rank r's output. Shape: parts are contiguous, in rank order. Each has
  /// its own size, which may be 0; there is also a part for the rank itself.
  virtual void all_to_all(ConstBytes input, std::span<const std::size_t> input_parts, Bytes output,
                          std::span<const std::size_t> output_parts) = 0;
  /// Copies the root's data to all ranks. Shape: at least a byte.
  virtual void broadcast(Bytes data, int root) = 0;
  virtual void set_timeout(std::chrono::nanoseconds timeout) = 0;
  /// Checks on the other ranks. A rank that waits in a call must call it repeatedly: the first time at once, then each
  /// time after the duration that the previous call returned. It may take some seconds. It throws PeerLost, which the
  /// engine must pass on, if the wait is in vain. If an engine can't do this, late ranks are not reported.
  using Look = std::function<std::chrono::nanoseconds()>;
  /// Returns whether a rank is gone because it has made all its calls, including the current one. For engines that
  /// check for ranks that are gone. Costs some store calls.
  using HasLeft = std::function<bool(int rank)>;
  virtual void look_while_waiting(const Look& /*look*/, const HasLeft& /*has_left*/) {}
  /// Releases the other ranks, whose waits for this one must end. Called once, after an error; no more calls follow.
  virtual void close() noexcept {}
};

/// The version of what ranks tell each other before a call; it must be the same on all.
inline constexpr int kEngineProtocol = 3;

/// The ranks that an engine connects, and this process's rank among them.
struct EngineMembers {
  std::string name = "group";  ///< In errors.
  int rank = 0;
  int size = 1;
  /// Here ranks exchange what they wait for, apart from the engine, under keys that only this group uses. Without a
  /// store, late ranks are not reported.
  std::shared_ptr<Store> store = nullptr;
  std::string host = {};  ///< Equal on ranks that see each other's processes; for reports of what late ranks do.
  /// What describe_engine_process() returned on each rank, in rank order, if the ranks have exchanged it. Otherwise
  /// they ask for it at the store in their first call, and don't recognise a rank that dies before that.
  std::vector<std::string> processes = {};
  /// The memory of this process's job, for its flight recorder. Without it, calls are not recorded.
  std::shared_ptr<JobMemory> memory = nullptr;
};

/// Returns who this process is, for EngineMembers::processes. `host`: as EngineMembers::host.
std::string describe_engine_process(const std::string& host);

}  // namespace retinue
