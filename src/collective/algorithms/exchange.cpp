#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>

#include "collective/algorithms/paths.h"
#include "collective/algorithms/reducer.h"
#include "collective/algorithms/slices.h"
#include "collective/kernels/kernels.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {
namespace {

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

/// At most `limit` bytes from `begin` on.
void keep_own_part(const Call& call, int rank, std::size_t begin = 0, std::size_t limit = kNoLimit) {
  const ConstBytes input = call.input_part(rank);
  const Bytes output = call.output_part(rank);
  if (input.data() != output.data() && begin < input.size())
    std::memmove(output.data() + begin, input.data() + begin, std::min(limit, input.size() - begin));
}

/// One member's part in an exchange: it takes what is for it from all givers, and, where its own data don't lie within
/// the others' reach, brings them there.
class Exchange {
 public:
  Exchange(Session& session, const Call& call, const Arrival& arrival)
      : session_(session),
        call_(call),
        pattern_(call.pattern),
        rank_(session.rank()),
        size_(session.size()),
        root_(static_cast<int>(call.shape.root)),
        uneven_(arrival.uneven),
        largest_(arrival.count * call.element_bytes),
        gives_to_others_(call.gives && !(pattern_.only_root_takes && rank_ == root_)),
        takes_from_others_(call.takes && !(pattern_.only_root_gives && rank_ == root_)),
        is_gather_(call.shape.kind == CollectiveKind::kGather) {}

  static Steps run(Session& session, Exchange exchange, Path path) {
    if (exchange.run_at_once(path)) return {};
    return path == Path::kDirect ? run_direct(session, std::move(exchange)) : run_chunked(session, std::move(exchange));
  }

 private:
  /// Where a giver's part for this member is, from the current round's first byte on.
  using Source = const std::byte* (Exchange::*)(int giver) const;

  /// What needs no further wait. Returns whether that was all.
  bool run_at_once(Path path) {
    if (uneven_ && takes_from_others_) check_sizes();
    if (is_gather_ && gives_to_others_ && session_.gives_at_once(call_, rank_)) return true;
    if (is_gather_) take(0, kNoLimit, &Exchange::at_once);
    keeps_own_part_ = pattern_.result == Pattern::Result::kParts && call_.gives && call_.takes;
    if (path == Path::kDirect || path == Path::kChunked) return false;
    if (path == Path::kInline && is_reduction(call_.shape.kind) && !pattern_.part_per_taker &&
        call_.what.function == nullptr) {
      reduce_lines();
      return true;
    }
    keep_own_part();
    if (path == Path::kInline) take(0, largest_, &Exchange::inlined);
    if (path == Path::kStaged) take(0, largest_, &Exchange::staged);
    return true;
  }

  bool gives_to_me(int giver) const { return giver != rank_ && (!pattern_.only_root_gives || giver == root_); }

  std::size_t index() const { return pattern_.part_per_taker ? static_cast<std::size_t>(rank_) : 0; }

  const PartEntry* listed(int giver) const {
    if ((session_.place(giver) & kListed) == 0) return nullptr;
    return reinterpret_cast<const PartEntry*>(session_.stage(giver)) + index();
  }
  std::size_t even_part_bytes(int giver) const {
    return session_.line(giver).count.load(std::memory_order_relaxed) * call_.element_bytes;
  }
  /// Bytes of a giver's part for this member.
  std::size_t bytes_from(int giver) const {
    if (!uneven_) return largest_;
    const PartEntry* entry = listed(giver);
    return entry != nullptr ? entry->bytes : even_part_bytes(giver);
  }

  const std::byte* inlined(int giver) const {
    return reinterpret_cast<const std::byte*>(&session_.line(giver).inline_data) + index() * largest_;
  }
  const std::byte* staged(int giver) const {
    const PartEntry* entry = uneven_ ? listed(giver) : nullptr;
    return session_.stage(giver) + (entry != nullptr ? entry->staged_at : index() * even_part_bytes(giver));
  }
  const std::byte* in_place(int giver) const {
    const PartEntry* entry = uneven_ ? listed(giver) : nullptr;
    const std::uint64_t offset = input_offset(session_.line(giver));
    return session_.memory().at(entry != nullptr ? entry->offset : offset + index() * even_part_bytes(giver));
  }
  const std::byte* at_once(int giver) const {
    return (session_.place(giver) & kStaged) != 0 ? staged(giver) : inlined(giver);
  }
  /// Of a gather: who gives at once has left, whatever the others do.
  bool gives_later(int giver) const {
    return gives_to_me(giver) && !(is_gather_ && session_.gives_at_once(call_, giver));
  }
  /// Where a round's piece of a giver's part for a taker is: in the giver's ring of chunks, or, where they may be at
  /// different memory nodes and no other taker reads it, in the taker's, who then reads what is near.
  std::byte* place_in_chunk(std::size_t round, int giver, int taker) const {
    const bool at_taker = pattern_.part_per_taker && session_.places().span_nodes();
    const int owner = at_taker ? taker : giver;
    const int other = at_taker ? giver : taker;
    // An owner has none for itself.
    const int part = !pattern_.part_per_taker ? 0 : other < owner ? other : other - 1;
    return session_.board().chunks(owner) + (first_chunk(giver) + round) % chunks_ * chunk_ +
           static_cast<std::size_t>(part) * space_;
  }
  /// Each giver goes on where it was, see StageRing; at takers several of them fill one chunk.
  std::size_t first_chunk(int giver) const {
    const bool is_known = (session_.place(giver) & kListed) == 0 && !session_.places().span_nodes();
    return is_known ? (staged_at(session_.line(giver)) + chunk_ - 1) / chunk_ : 0;
  }
  const std::byte* in_chunk(int giver) const { return place_in_chunk(round_, giver, rank_); }

  void keep_own_part(std::size_t begin = 0, std::size_t limit = kNoLimit) const {
    if (keeps_own_part_) retinue::keep_own_part(call_, rank_, begin, limit);
  }

  void check_sizes() {
    for (int giver = 0; giver < size_; ++giver) {
      if (!gives_to_me(giver)) continue;
      const std::size_t wanted = call_.output_part(giver).size();
      const std::size_t given = bytes_from(giver);
      if (given != wanted) session_.fail_sizes(giver, given, wanted);
    }
  }

  /// Takes the bytes from `begin` on, at most `limit` of each part.
  void take(std::size_t begin, std::size_t limit, Source source) {
    if (pattern_.result == Pattern::Result::kParts) return take_parts(begin, limit, source);
    if (!call_.takes) return;
    const Bytes output = call_.output_part(0);
    if (begin >= output.size()) return;
    PointerLists& lists = session_.scratch();
    const int givers = pattern_.result == Pattern::Result::kPrefix ? rank_ + 1 : size_;
    for (int giver = 0; giver < givers; ++giver)
      lists.sources[static_cast<std::size_t>(giver)] =
          giver == rank_ ? call_.input_part(rank_).data() + begin : (this->*source)(giver);
    void* destination = output.data() + begin;
    reduce_arrays(session_, call_, givers, {&destination, 1}, std::min(limit, output.size() - begin));
  }

  /// Reduces whole lines, this member's own too, whatever is behind the data: a vector of a fixed size needs no detour
  /// through memory, for which the next load would wait.
  void reduce_lines() {
    if (!call_.takes) return;
    PointerLists& lists = session_.scratch();
    const int givers = pattern_.result == Pattern::Result::kPrefix ? rank_ + 1 : size_;
    for (int giver = 0; giver < givers; ++giver) lists.sources[static_cast<std::size_t>(giver)] = inlined(giver);
    alignas(kInlineBytes) std::byte result[kInlineBytes];
    void* destination = &result;
    line_kernels().get(call_.shape.dtype, call_.shape.op)(session_.reduce_sources(givers, call_.shape.op),
                                                          {&destination, 1}, kInlineBytes / call_.element_bytes);
    const Bytes output = call_.output_part(0);
    std::memcpy(output.data(), &result, output.size());
  }

  void take_parts(std::size_t begin, std::size_t limit, Source source) {
    if (!takes_from_others_) return;
    // Each member begins with its neighbour, so that not all read the same buffer at once.
    for (int step = 1; step < size_; ++step) {
      const int giver = (rank_ + step) % size_;
      if (!gives_to_me(giver) || gives_later(giver) == (source == &Exchange::at_once)) continue;
      const std::size_t bytes = bytes_from(giver);
      if (begin < bytes)
        copy_bytes(call_.output_part(giver).data() + begin, (this->*source)(giver), std::min(limit, bytes - begin));
    }
  }

  void plan_rounds() {
    const std::size_t parts = pattern_.part_per_taker ? static_cast<std::size_t>(size_ - 1) : 1;
    const std::size_t chunk =
        std::clamp(std::bit_ceil(largest_ * parts) / 8, session_.paths().smallest_chunk, kChunkBytes);
    const std::size_t wanted = std::max({chunk / parts, call_.element_bytes, std::size_t{1}});
    space_ = std::min((wanted + kCacheLine - 1) / kCacheLine, kChunkBytes / parts / kCacheLine) * kCacheLine;
    unit_ = call_.element_bytes > space_ ? call_.element_bytes : space_ / call_.element_bytes * call_.element_bytes;
    pieces_ = (unit_ + space_ - 1) / space_;
    rounds_ = (largest_ + unit_ - 1) / unit_ * pieces_;
    chunk_ = space_ * parts;
    chunks_ = kChunkRingBytes / chunk_;
    if (gives_to_others_) session_.staging().set_next_chunk((first_chunk(rank_) + rounds_) % chunks_ * chunk_);
  }
  /// What of each part travels in a round.
  Slice piece(std::size_t round) const {
    const std::size_t begin = round % pieces_ * space_;
    return {.begin = round / pieces_ * unit_ + begin, .bytes = std::min(space_, unit_ - begin)};
  }

  void fill(std::size_t round) {
    const auto [begin, bytes] = piece(round);
    const int parts = pattern_.part_per_taker ? size_ : 1;
    for (int i = 0; i < parts; ++i) {
      if (pattern_.part_per_taker && i == rank_) continue;
      const ConstBytes part = call_.input_part(i);
      if (begin < part.size())
        session_.fill_shared(place_in_chunk(round, rank_, i), part.data() + begin,
                             std::min(bytes, part.size() - begin));
    }
    session_.post(round + 1);
    // What was just read is in the cache. Only the own part may be longer than the largest.
    keep_own_part(begin, round + 1 < rounds_ ? bytes : kNoLimit);
  }

  const std::byte* in_window(int giver) const {
    return windows_.get() + static_cast<std::size_t>(giver) * call_.element_bytes;
  }

  /// Of elements that no chunk holds: collects this round's piece of one, and reduces it when it is whole.
  void collect(const Slice& piece) {
    const Bytes output = call_.output_part(0);
    if (piece.begin >= output.size()) return;
    const std::size_t at = piece.begin % unit_;
    const int givers = pattern_.result == Pattern::Result::kPrefix ? rank_ : size_;
    for (int giver = 0; giver < givers; ++giver)
      if (giver != rank_) copy_bytes(const_cast<std::byte*>(in_window(giver)) + at, in_chunk(giver), piece.bytes);
    if (at + piece.bytes == unit_) take(piece.begin - at, unit_, &Exchange::in_window);
  }

  void make_windows() {
    try {
      windows_.reset(new std::byte[static_cast<std::size_t>(size_) * call_.element_bytes]);
    } catch (...) {
      session_.fail_by(std::current_exception());
    }
  }

  void take_in_place() {
    session_.enter();
    take(0, largest_, &Exchange::in_place);
    for (int giver = 0; giver < size_; ++giver)
      if (gives_later(giver)) session_.check_giver(giver);
  }

  static Steps run_direct(Session& session, Exchange exchange) {
    if (exchange.takes_from_others_) exchange.take_in_place();
    session.post(1);
    exchange.keep_own_part();  // While the others may still be busy with theirs.
    if (exchange.gives_to_others_) co_await Released(session, exchange.takers());
  }

  /// Who takes what this member gives.
  RankRange takers() const { return pattern_.only_root_takes ? RankRange{root_, root_ + 1} : RankRange{0, size_}; }

  void prepare_rounds() {
    plan_rounds();
    check_steps(call_, rounds_, largest_);
    if (pieces_ > 1 && takes_from_others_) make_windows();
    if (gives_to_others_)
      fill(0);
    else
      keep_own_part();
  }

  void take_round() {
    const Slice next = piece(round_);
    if (pieces_ > 1)
      collect(next);
    else
      take(next.begin, next.bytes, &Exchange::in_chunk);
    if (!gives_to_others_) session_.post(round_ + 1);
  }

  /// In rounds: a giver fills a chunk and posts k + 1; who only takes posts k + 1 when it has emptied the chunks of
  /// round k. A chunk is filled again three rounds later or more, when nobody reads it any more: a member that gives
  /// and takes posts k + 1 after it took round k - 2, and fills round k + 1 after all posted k + 1; one that only gives
  /// waits for the takers. It doesn't wait at the end: the next collective begins when all have published their
  /// lines, which they do after their last copy.
  static Steps run_chunked(Session& session, Exchange exchange) {
    exchange.prepare_rounds();
    const bool takes = exchange.takes_from_others_;
    for (std::size_t& round = exchange.round_; round < exchange.rounds_; ++round) {
      for (int giver = 0; takes && giver < exchange.size_; ++giver)
        if (exchange.gives_later(giver)) co_await posted_by(session, giver, round + 1);
      if (exchange.gives_to_others_ && round + 1 < exchange.rounds_) {
        if (!takes && round + 1 >= exchange.chunks_)
          co_await Posted(session, exchange.takers(), round + 2 - exchange.chunks_);
        exchange.fill(round + 1);
      }
      if (takes) exchange.take_round();
    }
  }

  Session& session_;
  const Call& call_;
  const Pattern& pattern_;
  int rank_;
  int size_;
  int root_;
  bool uneven_;
  std::size_t largest_;  ///< Bytes of the largest part.
  bool gives_to_others_;
  bool takes_from_others_;
  bool is_gather_;
  bool keeps_own_part_ = false;
  // When chunked:
  std::size_t space_ = 0;  ///< Bytes of a part that a chunk holds: of one part, or of the part for each taker.
  std::size_t unit_ = 0;   ///< What is taken at a time: the elements that fit there, or one that doesn't, which then
  std::size_t rounds_ = 0;
  std::size_t chunk_ = 0;                 ///< Bytes of a round's data, of which a member's ring
  std::size_t chunks_ = 0;                ///< holds so many, three or more.
  std::size_t pieces_ = 0;                ///< travels in several rounds,
  std::unique_ptr<std::byte[]> windows_;  ///< and is put together here, one of each giver.
  std::size_t round_ = 0;
};

}  // namespace

void run_alone(const Call& call) {
  if (call.shape.kind == CollectiveKind::kAllReduceCoalesced) return run_alone_coalesced(call);
  if (!is_reduction(call.shape.kind) || call.what.function != nullptr) return keep_own_part(call, 0);
  const void* input = call.input_part(0).data();
  void* output = call.output_part(0).data();
  kernels().get(call.shape.dtype, call.shape.op)({&input, 1, &call.what.factor}, {&output, 1}, call.count);
}

Steps exchange(Session& session, const Call& call, Path path, const Arrival& arrival) {
  return Exchange::run(session, Exchange(session, call, arrival), path);
}

}  // namespace retinue
