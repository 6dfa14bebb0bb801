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
#include "retinue/collective/detail/typed_collectives.h"
#include "retinue/collective/detail/uneven_collectives.h"
#include "retinue/collective/engine.h"
#include "retinue/collective/message.h"
#include "retinue/collective/options.h"
#include "retinue/collective/request.h"
#include "retinue/collective/types.h"
#include "retinue/ipc/job_group.h"

namespace retinue {

class Communicator;
namespace detail {
/// Returns a name, unique in the job, for the part of `parent` whose first rank is `first_rank`. All of `parent`'s
/// members call it, after the same calls of `parent`.
std::string name_of_part(const Communicator& parent, std::string_view name, int first_rank);
}  // namespace detail

/// A communicator: lets ranks work in step. Ranks of one host use job memory, ranks of several hosts use an engine.
///
/// All members make the same calls in the same order. If a member makes a different call, it and all others get
/// CollectiveMismatch. If a member died or finished, every wait ends with PeerLost.
///
/// A *part* is the data that one rank gives to another, or to all. Where there is a part for or from each rank, the
/// parts are contiguous and in rank order. A rank may give or take its own part in place; all_to_all, scan, reduce and
/// all_reduce also accept `output` equal to `input`. Other overlaps, also between a rank's outputs, are UsageErrors.
/// Pointers need no alignment. A buffer that a rank doesn't use may be null: on ranks other than the root, the output
/// of reduce and gather and the input of scatter.
///
/// Messages between two ranks arrive in the order in which they were begun, for receives that accept them. If several
/// ranks could send, `source` may be kAnySource; `tag` may be kAnyTag. Other tags are not negative. A message may be
/// shorter than the buffer; a longer one is a CollectiveMismatch.
///
/// Blocking: every collective returns when the result is in the caller's buffer and the buffers may be changed. A rank
/// that needs nothing from another for that (the root of a small broadcast, a non-root rank of a gather) doesn't wait
/// for it, and may be some calls ahead. barrier, and calls in which each rank gives to each, return when all have made
/// the call. A mismatch that affects no rank's data is thrown in a later call, by the next barrier at the latest.
/// Threads: one call at a time, from any thread. A call made during another one gets a UsageError.
/// Errors: PeerLost, CollectiveMismatch, TimeoutError, UsageError.
/// After an error: all but UsageError poison the group; later calls throw the same error.
/// Cost: docs/reference/algorithms.md. Inputs in job memory are read in place; others are copied once more, through
/// shared memory that stays in the cache.
///
/// With an engine, all collectives are available and give the same bits; each waits for all ranks, and all ranks detect
/// a mismatch at once. Messages and start() are UsageErrors, monitored_barrier() is a barrier with a timeout, and the
/// engine reports which ranks died.
class Communicator : public TypedCollectives<Communicator>, public UnevenCollectives<Communicator> {
 public:
  /// Blocking: waits for all members, at most `options.timeout`. With std::make_unique or emplace(), pass CallSite()
  /// last: otherwise errors would name a line of the standard library.
  explicit Communicator(JobGroup group, CommunicatorOptions options = {}, CallSite site = {});
  /// Makes a communicator of ranks that share no memory. Of the options, only the timeout is used. Doesn't wait.
  Communicator(std::unique_ptr<Engine> engine, const EngineMembers& members, const CommunicatorOptions& options = {});
  ~Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;

  int rank() const noexcept;
  int size() const noexcept;
  /// Returns whether members outnumber the CPUs they may run on. If so, waiting members yield their CPUs and none
  /// spins.
  bool is_crowded() const noexcept;
  /// Returns whether members share memory; otherwise an engine connects them.
  bool shares_memory() const noexcept;
  /// Returns the group. It has no memory and no slots if members share no memory.
  const JobGroup& group() const noexcept;
  void set_timeout(std::chrono::nanoseconds timeout);
  /// Makes the current Request::wait_any(), or else the next one, return. Threads: any.
  void interrupt() noexcept;

  /// Makes a call that is given as data.
  void run(const CollectiveCall& call, CallSite site = {});
  /// Begins a call and doesn't wait for other members. Operations of a communicator proceed in the order in which they
  /// were begun: later calls of all kinds follow this one, and blocking calls wait for it first.
  Request start(const CollectiveCall& call, CallSite site = {});

  /// Sends a message. Blocking: until the data may be changed; for large data, until the receiver takes them.
  /// Cost: up to 16 KiB (4 in large groups): two copies through memory that stays in the cache, without waiting while
  /// it has free space. Above that: one copy, by the receiver, from job memory; two, in pieces, from private memory.
  template <class Data>
  void send(Data&& data, int destination, int tag = 0, CallSite site = {}) {
    if constexpr (detail::can_give<Data>()) send_bytes(detail::bytes_of(data), destination, tag, site);
  }
  template <class Buffer>
  Received recv(Buffer&& buffer, int source, int tag = 0, CallSite site = {}) {
    if constexpr (detail::can_take<Buffer>()) return recv_bytes(detail::bytes_of(buffer), source, tag, site);
  }
  /// Receives a message of any size into `data`, which is resized to fit.
  Received recv_any_size(std::vector<std::byte>& data, int source, int tag = 0, CallSite site = {});
  /// Sends and receives at once, so that two ranks can exchange messages. The buffers must not overlap. isend() and
  /// irecv() begin a message and don't wait.
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
  /// Begins all of the messages or, with a UsageError, none. No receive buffer may overlap a buffer of another message.
  std::vector<Request> batch_isend_irecv(std::span<const P2POp> messages, CallSite site = {});

  void barrier(CallSite site = {}) { run(CollectiveCall::barrier(), site); }
  /// Runs a barrier that names the missing ranks, on all ranks that came and on late ones when they come.
  /// Errors: TimeoutError, which names all missing ranks. PeerLost if members are gone; it names those alone or, with
  /// `options.wait_all_ranks`, after the timeout also all other missing ranks.
  /// After an error: as after any, the group is unusable; the ranks that came can make a new one.
  void monitored_barrier(const MonitoredBarrierOptions& options = {}, CallSite site = {});

  // Overloads for ranges of elements, for functions of the program, and for parts of different sizes.
  using TypedCollectives::all_reduce, TypedCollectives::reduce, TypedCollectives::reduce_scatter,
      TypedCollectives::scan;
  using TypedCollectives::broadcast, TypedCollectives::all_gather, TypedCollectives::gather, TypedCollectives::scatter,
      TypedCollectives::all_to_all;
  using UnevenCollectives::all_gather, UnevenCollectives::gather, UnevenCollectives::scatter,
      UnevenCollectives::all_to_all, UnevenCollectives::reduce_scatter;

  /// Reduces `count` elements at `data` over all ranks, in place, with the bits of the serial loop over ranks.
  /// Cost: for buffers in job memory, each rank reads its slice from all ranks and writes it to all: twice the buffer's
  /// bytes per rank. Private buffers need two more copies, through chunks that stay in the cache.
  void all_reduce(void* data, std::size_t count, Dtype dtype, ReduceOp op, CallSite site = {}) {
    run(CollectiveCall::all_reduce(data, count, dtype, op), site);
  }
  /// Reduces several buffers of whole elements as if they were contiguous. Their sizes are the same on all ranks. Cost:
  /// as one call. In place if all are in job memory and there are at most 8192; otherwise through chunks.
  void all_reduce_coalesced(std::span<const Bytes> buffers, Dtype dtype, ReduceOp op, CallSite site = {}) {
    run(CollectiveCall::all_reduce_coalesced(buffers, dtype, op), site);
  }
  /// Does the same as all_reduce(), but only `root` gets the result.
  void reduce(const void* input, void* output, std::size_t count, Dtype dtype, ReduceOp op, int root,
              CallSite site = {}) {
    run(CollectiveCall::reduce(input, output, count, dtype, op, root), site);
  }
  /// Reduces part r of all ranks' inputs into rank r's output. Shape: `count` elements per part.
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
  /// Copies rank r's input to part r of every rank's output. Shape: `bytes` bytes per part.
  void all_gather(const void* input, void* output, std::size_t bytes, CallSite site = {}) {
    run(CollectiveCall::all_gather(input, output, bytes), site);
  }
  /// Does the same as all_gather(), but only `root` gets the result.
  void gather(const void* input, void* output, std::size_t bytes, int root, CallSite site = {}) {
    run(CollectiveCall::gather(input, output, bytes, root), site);
  }
  /// Copies part r of the root's input to rank r's output. Shape: `bytes` bytes per part.
  void scatter(const void* input, void* output, std::size_t bytes, int root, CallSite site = {}) {
    run(CollectiveCall::scatter(input, output, bytes, root), site);
  }
  /// Copies part r of rank s's input to part s of rank r's output. Shape: `bytes` bytes per part.
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
