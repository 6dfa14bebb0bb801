#include "collective/kernels.h"
#include "collective/paths.h"
#include "collective/slices.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {
namespace {

ReduceKernel kernel_of(const Call& call) {
  return kernels().get(call.shape.dtype, call.shape.op);
}

/// Each member loads its slice from all buffers and stores the result to all takers': every byte is read once and
/// written once.
void reduce_direct(Session& session, const Call& call) {
  PointerLists& lists = session.scratch();
  const Slice slice = slice_of(call.part_bytes(), session.size(), session.rank());
  for (int i = 0; i < session.size(); ++i) {
    const std::uint64_t offset = session.line(i).offset.load(std::memory_order_relaxed);
    std::byte* buffer = session.memory().at(offset) + slice.begin;
    lists.sources[static_cast<std::size_t>(i)] = buffer;
    lists.destinations[static_cast<std::size_t>(i)] = buffer;
  }
  int takers = session.size();
  if (call.pattern.only_root_takes) {
    takers = 1;
    lists.destinations[0] = session.memory().at(session.output_offset(call.shape.root)) + slice.begin;
  }
  session.enter();
  kernel_of(call)(session.reduce_sources(session.size(), call.shape.op), {lists.destinations.data(), takers},
                  slice.bytes / call.element_bytes);
  for (int i = 0; i < session.size(); ++i) session.check_giver(i);
  session.post(1);
  session.await_release();
}

/// Private buffers, in rounds of at most kChunkBytes. In each round a member copies the others' slices of its data into
/// its chunk, reduces its own slice (from its buffer and the others' chunks) into its chunk, and a taker also copies
/// the others' results out of their chunks.
///
/// Round k uses chunk k % kChunkBuffers; two are enough. Copying in for k + 1 overwrites the others' slices of round k
/// - 1, which they read while reducing k - 1, and reduced(k - 1) was awaited. Reducing k + 1 overwrites the result of k
/// - 1, which the others copied out before they posted copied_in(k + 1), and that was awaited.
class ChunkedReduction {
 public:
  ChunkedReduction(Session& session, const Call& call)
      : session_(session),
        input_(static_cast<const std::byte*>(call.what.input)),
        output_(call.takes ? static_cast<std::byte*>(call.what.output) : nullptr),
        shared_result_(!call.takes || !call.pattern.only_root_takes),
        bytes_(call.part_bytes()),
        element_bytes_(call.element_bytes),
        op_(call.shape.op),
        kernel_(kernel_of(call)),
        rounds_((bytes_ + kChunkBytes - 1) / kChunkBytes) {}

  void run() {
    copy_in(0);
    for (std::size_t k = 0; k < rounds_; ++k) {
      session_.await(copied_in(k));
      reduce(k);
      if (k + 1 < rounds_) copy_in(k + 1);
      session_.await(reduced(k));
      if (output_ != nullptr) copy_out(k);
    }
  }

 private:
  static constexpr std::uint64_t copied_in(std::size_t k) { return 2 * k + 1; }
  static constexpr std::uint64_t reduced(std::size_t k) { return 2 * k + 2; }

  std::size_t round_bytes(std::size_t k) const { return std::min(kChunkBytes, bytes_ - k * kChunkBytes); }
  Slice slice(std::size_t k, int rank) const { return slice_of(round_bytes(k), session_.size(), rank); }

  void copy_in(std::size_t k) {
    std::byte* chunk = session_.board().chunk(session_.rank(), k);
    for (int i = 0; i < session_.size(); ++i) {
      if (i == session_.rank()) continue;
      const Slice part = slice(k, i);
      stream_bytes(chunk + part.begin, input_ + k * kChunkBytes + part.begin, part.bytes);
    }
    session_.post(copied_in(k));
  }

  void reduce(std::size_t k) {
    PointerLists& lists = session_.scratch();
    const Slice own = slice(k, session_.rank());
    const std::size_t begin = k * kChunkBytes + own.begin;
    for (int i = 0; i < session_.size(); ++i)
      lists.sources[static_cast<std::size_t>(i)] =
          i == session_.rank() ? input_ + begin : session_.board().chunk(i, k) + own.begin;
    // Reduced in private memory first, because storing to lines that another core has read is slow.
    std::byte* result = output_ != nullptr ? output_ + begin : session_.scratch().chunk();
    void* destination = result;
    kernel_(session_.reduce_sources(session_.size(), op_), {&destination, 1}, own.bytes / element_bytes_);
    if (shared_result_) stream_bytes(session_.board().chunk(session_.rank(), k) + own.begin, result, own.bytes);
    session_.post(reduced(k));
  }

  void copy_out(std::size_t k) {
    for (int i = 0; i < session_.size(); ++i) {
      if (i == session_.rank()) continue;
      const Slice part = slice(k, i);
      copy_bytes(output_ + k * kChunkBytes + part.begin, session_.board().chunk(i, k) + part.begin, part.bytes);
    }
  }

  Session& session_;
  const std::byte* input_;
  std::byte* output_;   ///< Null: this member takes nothing.
  bool shared_result_;  ///< Others take the slice that this member reduces.
  std::size_t bytes_;
  std::size_t element_bytes_;
  ReduceOp op_;
  ReduceKernel kernel_;
  std::size_t rounds_;
};

}  // namespace

void reduce_in_slices(Session& session, const Call& call, Path path) {
  if (path == Path::kDirect) return reduce_direct(session, call);
  ChunkedReduction(session, call).run();
}

}  // namespace retinue
