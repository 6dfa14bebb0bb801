#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "retinue/collective/call.h"

namespace retinue {

class JobMemory;
class Store;

/// What moves bytes between ranks that share no memory, for a Communicator: gloo, MPI, a network of one's own.
///
/// All ranks make the same calls in the same order, with sizes that fit. A communicator makes one call at a time.
/// Blocking: until the caller's bytes are there, and its own may be changed; at most the timeout.
/// Errors: PeerLost and TimeoutError, whose texts go on where "rank 0 waits in its 4th call, barrier at a.cpp:7, and"
/// ends, or others; all of them end the group's use of the engine.
class Engine {
 public:
  virtual ~Engine() = default;

  /// Rank r's input becomes part r of every output. Shape: all inputs are of one size, at least a byte.
  virtual void all_gather(ConstBytes input, Bytes output) = 0;
  /// Part r of rank s's input becomes part s of rank r's output. Shape: parts lie one behind the other, in rank order;
  /// they have a size each, which may be nothing, and there is one for the own rank, too.
  virtual void all_to_all(ConstBytes input, std::span<const std::size_t> input_parts, Bytes output,
                          std::span<const std::size_t> output_parts) = 0;
  /// Shape: at least a byte.
  virtual void broadcast(Bytes data, int root) = 0;
  virtual void set_timeout(std::chrono::nanoseconds timeout) = 0;
  /// `look` is to be called by who waits in a call, after the time that its last call returned; at first after one of
  /// nothing. It may take some seconds, and throws PeerLost, to be passed on, where it finds that the wait is in vain.
  /// Where an engine can't do so, late ranks are not reported.
  using Look = std::function<std::chrono::nanoseconds()>;
  /// Whether that rank is gone because it has made all its calls, the one that is under way as well: for engines that
  /// look for ranks that are gone. Some store calls.
  using HasLeft = std::function<bool(int rank)>;
  virtual void look_while_waiting(const Look& /*look*/, const HasLeft& /*has_left*/) {}
  /// Called once, after an error: lets go of the other ranks, whose waits for this one are to end. No more calls
  /// follow.
  virtual void close() noexcept {}
};

/// Of what ranks tell each other before a call: all must have the same.
inline constexpr int kEngineProtocol = 2;

/// The ranks that an engine connects, and which of them this is.
struct EngineMembers {
  std::string name = "group";  ///< In errors.
  int rank = 0;
  int size = 1;
  /// Where ranks tell each other for what they wait, beside the engine: under keys that are this group's alone. Without
  /// one nobody says who is late.
  std::shared_ptr<Store> store = nullptr;
  std::string host = {};  ///< The same for ranks that see each other's processes; for what late ones do.
  /// Of this process's job: for its flight recorder. Without it calls are not recorded.
  std::shared_ptr<JobMemory> memory = nullptr;
};

}  // namespace retinue
