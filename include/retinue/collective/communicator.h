#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/collective/call.h"
#include "retinue/collective/engine.h"
#include "retinue/collective/message.h"
#include "retinue/collective/options.h"
#include "retinue/collective/request.h"
#include "retinue/collective/typed_collectives.h"
#include "retinue/collective/types.h"
#include "retinue/collective/uneven_collectives.h"
#include "retinue/ipc/job_group.h"

namespace retinue {

class Communicator;
namespace detail {
/// A group's name that is unique in the job. Called by all of `parent`'s members after the same of its calls; of the
/// parts that this call makes, it is that of `first_rank`.
std::string name_of_part(const Communicator& parent, std::string_view name, int first_rank);
}  // namespace detail

/// Lets ranks step together: those of one host through job memory, those of several by an engine.
///
/// All members make the same calls in the same order. A member that calls something else gets CollectiveMismatch, and
/// so do all others; a member that died or finished ends every wait with PeerLost.
///
/// A *part* is what one rank gives to another, or to all. Where there are parts for all ranks or from all, they lie one
/// behind the other in rank order. A rank may give or take its own part in place; all_to_all, scan, reduce and
/// all_reduce also take `output` equal to `input`. Other overlaps, also of a rank's outputs, are UsageErrors. Pointers
/// need no alignment. Buffers that a rank does not use (the output of reduce and gather and the input of scatter, where
/// it is not the root) may be null.
///
/// Messages between two ranks come in the order in which they were begun, for receives that take them. Where several
/// ranks could give, `source` may be kAnySource, and `tag` kAnyTag; otherwise tags are not negative. A message may be
/// shorter than the buffer; a longer one is a CollectiveMismatch.
///
/// Blocking: every collective returns when the result is in the caller's buffer, and the buffers may be changed. Who
/// needs nothing of another for that (the root of a small broadcast, a giver of a gather) does not wait for it, and may
/// be some calls ahead: barrier, and where each gives something to each, returns when all have made the call. A
/// mismatch that nobody's data depend on is thrown in one of the next calls, the next barrier at the latest.
/// Threads: one call at a time, of whatever thread. One that comes while another is in a call gets a UsageError.
/// Errors: PeerLost, CollectiveMismatch, TimeoutError, UsageError.
/// After an error: all but UsageError poison the group; later calls throw the same.
/// Cost: docs/reference/algorithms.md. Inputs in job memory are read where they are; others are copied once more,
/// through shared memory that stays in the cache.
///
/// By an engine all collectives are there, with the same bits; each waits for all ranks, and a mismatch is known on all
/// of them at once. Messages and start() are UsageErrors there, monitored_barrier() is a barrier with a timeout, and
/// who died is what the engine says.
class Communicator : public TypedCollectives<Communicator>, public UnevenCollectives<Communicator> {
 public:
  /// Blocking: waits for all members, at most `options.timeout`. Through std::make_unique or emplace() pass CallSite()
  /// last: errors would name the library's line.
  explicit Communicator(JobGroup group, CommunicatorOptions options = {}, CallSite site = {});
  /// Of ranks that share no memory; of the options the timeout alone counts. Doesn't wait.
  Communicator(std::unique_ptr<Engine> engine, const EngineMembers& members, const CommunicatorOptions& options = {});
  ~Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;

  int rank() const noexcept;
  int size() const noexcept;
  /// Whether members outnumber the CPUs that they may run on: then who waits hands its CPU on, and nobody spins.
  bool is_crowded() const noexcept;
  /// Whether members share memory; an engine connects them otherwise.
  bool shares_memory() const noexcept;
  /// Without memory and slots where members share none.
  const JobGroup& group() const noexcept;
  void set_timeout(std::chrono::nanoseconds timeout);
  /// Makes the Request::wait_any() that is under way, or else the next one, return. Threads: any.
  void interrupt() noexcept;

  /// Makes a call that is given as data.
  void run(const CollectiveCall& call, CallSite site = {});
  /// Begins it and waits for nobody. What is begun on a communicator goes on in the order in which it was; later calls
  /// of all kinds are behind it, and blocking ones wait for it first.
  Request start(const CollectiveCall& call, CallSite site = {});

  /// Blocking: until the data may be changed, which for much data is when the receiver takes them.
  /// Cost: of up to 16 KiB (4 in large groups) two copies through memory that stays in the cache, and no wait while
  /// there is room in it. More from job memory: one copy, by the receiver; from private memory two, in pieces.
  template <class Data>
  void send(Data&& data, int destination, int tag = 0, CallSite site = {}) {
    if constexpr (detail::can_give<Data>()) send_bytes(detail::bytes_of(data), destination, tag, site);
  }
  template <class Buffer>
  Received recv(Buffer&& buffer, int source, int tag = 0, CallSite site = {}) {
    if constexpr (detail::can_take<Buffer>()) return recv_bytes(detail::bytes_of(buffer), source, tag, site);
  }
  /// Receives a message of any size, which `data` becomes.
  Received recv_any_size(std::vector<std::byte>& data, int source, int tag = 0, CallSite site = {});
  /// Both at once, so that two ranks may do so with each other. isend() and irecv() begin it and don't wait.
  /// The buffers don't overlap.
  template <class Data, class Buffer>
  Received sendrecv(Data&& data, int destination, Buffer&& buffer, int source, int tag = 0, CallSite site = {}) {
    if constexpr (detail::can_give<Data>() && detail::can_take<Buffer>())
      return sendrecv_bytes(detail::bytes_of(data), destination, detail::bytes_of(buffer), source, tag, site);
  }
  template <class Data>
  Request isend(Data&& data, int destination, int tag = 0, CallSite site = {}) {
    if constexpr (detail::can_give_later<Data>())
      return begin(P2POp::isend(detail::bytes_of(data), destination, tag), site);
  }
  template <class Buffer>
  Request irecv(Buffer&& buffer, int source, int tag = 0, CallSite site = {}) {
    if constexpr (detail::can_take_later<Buffer>())
      return begin(P2POp::irecv(detail::bytes_of(buffer), source, tag), site);
  }
  /// Begins all of them, or, with a UsageError, none. None is received into what another one sends or receives.
  std::vector<Request> batch_isend_irecv(std::span<const P2POp> messages, CallSite site = {});

  void barrier(CallSite site = {}) { run(CollectiveCall::barrier(), site); }
  /// A barrier that says who did not come, on all who came and, when they come, on those.
  /// Errors: TimeoutError, with all that are missing; PeerLost where members are gone: with those alone, or, with
  /// `options.wait_all_ranks`, after the timeout with all others that are missing, too.
  /// After an error: as after any, the group can't be used on; those that came can make a new one.
  void monitored_barrier(const MonitoredBarrierOptions& options = {}, CallSite site = {});

  // On ranges of elements, by functions of the program, and with parts of several sizes.
  using TypedCollectives::all_reduce, TypedCollectives::reduce, TypedCollectives::reduce_scatter,
      TypedCollectives::scan;
  using TypedCollectives::broadcast, TypedCollectives::all_gather, TypedCollectives::gather, TypedCollectives::scatter,
      TypedCollectives::all_to_all;
  using UnevenCollectives::all_gather, UnevenCollectives::gather, UnevenCollectives::scatter,
      UnevenCollectives::all_to_all, UnevenCollectives::reduce_scatter;

  /// Reduces `count` elements at `data` over all ranks, in place, with the bits of the serial loop over ranks.
  /// Cost: buffers in job memory: each rank reads its slice from all and writes it to all, twice the buffer's bytes per
  /// rank. Private buffers: two copies more, through chunks that stay in the cache.
  void all_reduce(void* data, std::size_t count, Dtype dtype, ReduceOp op, CallSite site = {}) {
    run(CollectiveCall::all_reduce(data, count, dtype, op), site);
  }
  /// The same of several buffers of whole elements, as if they lay one behind the other; their sizes are the same on
  /// all ranks. Cost: one call's. In place where all lie in job memory and are at most 8192; otherwise through chunks.
  void all_reduce_coalesced(std::span<const Bytes> buffers, Dtype dtype, ReduceOp op, CallSite site = {}) {
    run(CollectiveCall::all_reduce_coalesced(buffers, dtype, op), site);
  }
  /// all_reduce() with the result at `root` alone.
  void reduce(const void* input, void* output, std::size_t count, Dtype dtype, ReduceOp op, int root,
              CallSite site = {}) {
    run(CollectiveCall::reduce(input, output, count, dtype, op, root), site);
  }
  /// Reduces part r of all ranks' inputs into rank r's output. Shape: `count` elements a part.
  void reduce_scatter(const void* input, void* output, std::size_t count, Dtype dtype, ReduceOp op,
                      CallSite site = {}) {
    run(CollectiveCall::reduce_scatter(input, output, count, dtype, op), site);
  }
  /// Reduces the inputs of ranks 0 to r into rank r's output.
  void scan(const void* input, void* output, std::size_t count, Dtype dtype, ReduceOp op, CallSite site = {}) {
    run(CollectiveCall::scan(input, output, count, dtype, op), site);
  }

  /// Copies `bytes` bytes at `data` from `root` to all other ranks.
  void broadcast(void* data, std::size_t bytes, int root, CallSite site = {}) {
    run(CollectiveCall::broadcast(data, bytes, root), site);
  }
  /// Rank r's input becomes part r of every rank's output. Shape: `bytes` bytes a part.
  void all_gather(const void* input, void* output, std::size_t bytes, CallSite site = {}) {
    run(CollectiveCall::all_gather(input, output, bytes), site);
  }
  /// The same, with the result at `root` alone.
  void gather(const void* input, void* output, std::size_t bytes, int root, CallSite site = {}) {
    run(CollectiveCall::gather(input, output, bytes, root), site);
  }
  /// Part r of the root's input becomes rank r's output. Shape: `bytes` bytes a part.
  void scatter(const void* input, void* output, std::size_t bytes, int root, CallSite site = {}) {
    run(CollectiveCall::scatter(input, output, bytes, root), site);
  }
  /// Part r of rank s's input becomes part s of rank r's output. Shape: `bytes` bytes a part.
  void all_to_all(const void* input, void* output, std::size_t bytes, CallSite site = {}) {
    run(CollectiveCall::all_to_all(input, output, bytes), site);
  }

 private:
  friend std::string explain_paths(const Communicator& group);
  friend std::string detail::name_of_part(const Communicator& parent, std::string_view name, int first_rank);
  class Impl;

  void send_bytes(ConstBytes data, int destination, int tag, CallSite site);
  Received recv_bytes(Bytes buffer, int source, int tag, CallSite site);
  Received sendrecv_bytes(ConstBytes data, int destination, Bytes buffer, int source, int tag, CallSite site);
  Request begin(const P2POp& message, CallSite site);

  std::unique_ptr<Impl> impl_;
};

}  // namespace retinue
