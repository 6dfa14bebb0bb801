#include "collective/algorithms/paths.h"
#include "collective/algorithms/reducer.h"
#include "collective/algorithms/slices.h"
#include "collective/kernels/kernels.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {
namespace {

Slice slice_for(const Call& call, std::size_t bytes, int ranks, int rank) {
  if (call.what.function == nullptr) return slice_of(bytes, ranks, rank);
  return slice_of(bytes, ranks, rank, slice_unit(call.element_bytes));
}

/// Each member loads its slice from all buffers and stores the result to all takers': every byte is read once and
/// written once.
Steps reduce_direct(Session& session, const Call& call) {
  PointerLists& lists = session.scratch();
  const Slice slice = slice_for(call, call.part_bytes(), session.size(), session.rank());
  for (int i = 0; i < session.size(); ++i) {
    const std::uint64_t offset = input_offset(session.line(i));
    std::byte* buffer = session.memory().at(offset) + slice.begin;
    lists.sources[static_cast<std::size_t>(i)] = buffer;
    lists.destinations[static_cast<std::size_t>(i)] = buffer;
  }
  int takers = session.size();
  if (call.pattern.only_root_takes) {
    takers = 1;
    const std::uint64_t of_result = session.line(call.shape.root).inline_data[0].load(std::memory_order_relaxed);
    lists.destinations[0] = session.memory().at(of_result) + slice.begin;
  }
  session.enter();
  reduce_arrays(session, call, session.size(), {lists.destinations.data(), takers}, slice.bytes);
  for (int i = 0; i < session.size(); ++i) session.check_giver(i);
  session.post(1);
  co_await Released(session, {0, session.size()});
}

/// What is left between two ranks' slices in a chunk, which begin at cache lines there: slices of a function's elements
/// may end anywhere.
constexpr std::size_t kSliceGap = kCacheLine;

/// The most that a chunk holds of a function's elements.
std::size_t round_space(const Call& call, int ranks) {
  if (call.what.function == nullptr) return kChunkBytes;
  const std::size_t gaps = (static_cast<std::size_t>(ranks) + 1) * kSliceGap;
  return gaps < kChunkBytes ? (kChunkBytes - gaps) / call.element_bytes * call.element_bytes : 0;
}

/// The same of whole slices, one of each member, which are as long as the longest.
std::size_t space_of_slices(int ranks) {
  const auto slices = static_cast<std::size_t>(ranks);
  return kChunkBytes / slices / kCacheLine * kCacheLine * slices;
}

/// Private buffers, in rounds of at most a chunk. In each round a member copies the others' slices of its data into
/// its chunk, reduces its own slice (from its buffer and the others' chunks) into its chunk, and a taker also copies
/// the others' results out of their chunks.
///
/// Two chunks, used in turn, are enough. Copying in for k + 1 overwrites the others' slices of round k - 1, which they
/// read while reducing k - 1, and reduced(k - 1) was awaited. Reducing k + 1 overwrites the result of k - 1, which the
/// others copied out before they posted copied_in(k + 1), and that was awaited.
class ChunkedReduction {
 public:
  ChunkedReduction(Session& session, const Call& call)
      : session_(session),
        call_(call),
        coalesced_(call.shape.kind == CollectiveKind::kAllReduceCoalesced),
        input_(static_cast<const std::byte*>(call.what.input)),
        output_(call.takes ? static_cast<std::byte*>(call.what.output) : nullptr),
        shared_result_(!call.takes || !call.pattern.only_root_takes),
        bytes_(call.part_bytes()),
        by_reader_(call.what.function == nullptr && session.places().span_nodes()),
        space_(by_reader_ ? space_of_slices(session.size()) : round_space(call, session.size())),
        rounds_((bytes_ + space_ - 1) / space_),
        first_chunk_(session.staging().take_chunks(rounds_)) {}

  static Steps run(Session& session, ChunkedReduction reduction) {
    check_steps(reduction.call_, reduced(reduction.rounds_ - 1), reduction.bytes_);
    reduction.copy_in(0);
    for (std::size_t k = 0; k < reduction.rounds_; ++k) {
      co_await all_posted(session, copied_in(k));
      reduction.reduce(k);
      if (k + 1 < reduction.rounds_) reduction.copy_in(k + 1);
      co_await all_posted(session, reduced(k));
      if (reduction.takes()) reduction.copy_out(k);
    }
  }

 private:
  static constexpr std::uint64_t copied_in(std::size_t k) { return 2 * k + 1; }
  static constexpr std::uint64_t reduced(std::size_t k) { return 2 * k + 2; }

  std::size_t round_bytes(std::size_t k) const { return std::min(space_, bytes_ - k * space_); }
  Slice slice(std::size_t k, int rank) const { return slice_for(call_, round_bytes(k), session_.size(), rank); }
  /// Where `of`'s slice, or its result, is in the chunk of `rank`.
  std::byte* in_chunk(std::size_t k, int rank, int of, const Slice& slice) const {
    std::size_t at = slice.begin;
    if (by_reader_) {
      // Near who reduces it, and shares out the result: in that one's chunk.
      at = static_cast<std::size_t>(rank) * (space_ / static_cast<std::size_t>(session_.size()));
      return chunk(of, k) + at;
    }
    if (call_.what.function != nullptr)
      at = (at + kCacheLine - 1) / kCacheLine * kCacheLine + static_cast<std::size_t>(of) * kSliceGap;
    return chunk(rank, k) + at;
  }
  std::byte* chunk(int rank, std::size_t k) const { return session_.board().chunk(rank, first_chunk_ + k); }

  /// This member's data of a round, of which those of a coalesced call may be spread over several buffers: those are
  /// packed into a chunk of this member's own.
  const std::byte* input(std::size_t k) const { return coalesced_ ? packed_[k % 2] : input_ + k * space_; }
  std::byte* output(std::size_t k) const { return coalesced_ ? packed_[k % 2] : output_ + k * space_; }
  bool takes() const { return coalesced_ || output_ != nullptr; }

  void pack(std::size_t k) {
    const BufferList& buffers = session_.buffers();
    std::byte*& data = packed_[k % 2];
    data = buffers.find(k * space_, round_bytes(k));
    must_unpack_[k % 2] = data == nullptr;
    if (data != nullptr) return;
    data = session_.scratch().chunk_of_round(k);
    buffers.gather(data, k * space_, round_bytes(k));
  }

  void copy_in(std::size_t k) {
    if (coalesced_) pack(k);
    for (int i = 0; i < session_.size(); ++i) {
      if (i == session_.rank()) continue;
      const Slice part = slice(k, i);
      session_.fill_shared(in_chunk(k, session_.rank(), i, part), input(k) + part.begin, part.bytes);
    }
    session_.post(copied_in(k));
  }

  void reduce(std::size_t k) {
    PointerLists& lists = session_.scratch();
    const Slice own = slice(k, session_.rank());
    for (int i = 0; i < session_.size(); ++i)
      lists.sources[static_cast<std::size_t>(i)] =
          i == session_.rank() ? input(k) + own.begin : in_chunk(k, i, session_.rank(), own);
    // Reduced in private memory first, because storing to lines that another core has read is slow.
    std::byte* result = takes() ? output(k) + own.begin : session_.scratch().chunk();
    void* destination = result;
    reduce_arrays(session_, call_, session_.size(), {&destination, 1}, own.bytes);
    if (shared_result_) session_.fill_shared(in_chunk(k, session_.rank(), session_.rank(), own), result, own.bytes);
    session_.post(reduced(k));
  }

  void copy_out(std::size_t k) {
    for (int i = 0; i < session_.size(); ++i) {
      if (i == session_.rank()) continue;
      const Slice part = slice(k, i);
      copy_bytes(output(k) + part.begin, in_chunk(k, i, i, part), part.bytes);
    }
    if (coalesced_ && must_unpack_[k % 2]) session_.buffers().scatter(output(k), k * space_, round_bytes(k));
  }

  Session& session_;
  const Call& call_;
  bool coalesced_;
  std::byte* packed_[2] = {};  ///< Of the rounds under way, where coalesced: their data,
  bool must_unpack_[2] = {};   ///< and whether these are a copy.
  const std::byte* input_;
  std::byte* output_;   ///< Null: this member takes nothing.
  bool shared_result_;  ///< Others take the slice that this member reduces.
  std::size_t bytes_;
  bool by_reader_;  ///< A chunk holds what its owner reduces, of all members, and not what its owner gives.
  std::size_t space_;
  std::size_t rounds_;
  std::uint64_t first_chunk_;
};

}  // namespace

bool has_slices(const Call& call, int ranks, Path path) {
  if (call.shape.kind == CollectiveKind::kAllReduceCoalesced) return path == Path::kChunked;
  if (call.shape.kind != CollectiveKind::kAllReduce && call.shape.kind != CollectiveKind::kReduce) return false;
  if (path == Path::kDirect) return true;
  // The root reduces what one other gives as fast as it reads that: another hop per round would only cost.
  const bool has_one_giver = call.pattern.only_root_takes && ranks == 2;
  return path == Path::kChunked && !has_one_giver && round_space(call, ranks) > 0;
}

Steps reduce_in_slices(Session& session, const Call& call, Path path) {
  if (path == Path::kDirect) return reduce_direct(session, call);
  return ChunkedReduction::run(session, ChunkedReduction(session, call));
}

}  // namespace retinue
