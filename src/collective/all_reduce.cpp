#include "collective/kernels.h"
#include "collective/paths.h"
#include "collective/slices.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {
namespace {

ReduceKernel kernel_of(const Call& call) {
  return kernels().get(call.shape.dtype, call.shape.op);
}

void reduce_inline(Session& session, const Call& call) {
  PointerLists& lists = session.scratch();
  for (int i = 0; i < session.size(); ++i) lists.sources[static_cast<std::size_t>(i)] = &session.line(i).inline_data;
  void* destination = call.output;
  kernel_of(call)({lists.sources.data(), session.size()}, {&destination, 1}, call.shape.count);
}

void reduce_staged(Session& session, const Call& call) {
  PointerLists& lists = session.scratch();
  for (int i = 0; i < session.size(); ++i)
    lists.sources[static_cast<std::size_t>(i)] = i == session.rank() ? call.input : session.stage(i);
  void* destination = call.output;
  kernel_of(call)({lists.sources.data(), session.size()}, {&destination, 1}, call.shape.count);
}

/// Each member loads its slice from all buffers and stores the result to all: every byte is read once and written once.
void reduce_direct(Session& session, const Call& call) {
  PointerLists& lists = session.scratch();
  const Slice slice = slice_of(call.shape.bytes(), session.size(), session.rank());
  for (int i = 0; i < session.size(); ++i) {
    std::byte* buffer = session.memory().at(session.line(i).offset.load(std::memory_order_relaxed)) + slice.begin;
    lists.sources[static_cast<std::size_t>(i)] = buffer;
    lists.destinations[static_cast<std::size_t>(i)] = buffer;
  }
  kernel_of(call)({lists.sources.data(), session.size()}, {lists.destinations.data(), session.size()},
                  slice.bytes / size_of(call.shape.dtype));
  session.post(1);
  session.await_release(1);
}

/// Private buffers, in rounds of at most kChunkBytes. In each round a member copies the others' slices of its data into
/// its chunk, reduces its own slice (from its buffer and the others' chunks) into its buffer and its chunk, and copies
/// the others' results out of their chunks.
///
/// Round k uses chunk k % kChunkBuffers; two are enough. Copying in for k + 1 overwrites the others' slices of round k
/// - 1, which they read while reducing k - 1, and reduced(k - 1) was awaited. Reducing k + 1 overwrites the result of k
/// - 1, which the others copied out before they posted copied_in(k + 1), and that was awaited.
class ChunkedReduction {
 public:
  ChunkedReduction(Session& session, const Call& call)
      : session_(session),
        data_(static_cast<std::byte*>(call.output)),
        bytes_(call.shape.bytes()),
        element_bytes_(size_of(call.shape.dtype)),
        kernel_(kernel_of(call)),
        rounds_((bytes_ + kChunkBytes - 1) / kChunkBytes) {}

  void run() {
    copy_in(0);
    for (std::size_t k = 0; k < rounds_; ++k) {
      session_.await(copied_in(k));
      reduce(k);
      if (k + 1 < rounds_) copy_in(k + 1);
      session_.await(reduced(k));
      copy_out(k);
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
      stream_bytes(chunk + part.begin, data_ + k * kChunkBytes + part.begin, part.bytes);
    }
    session_.post(copied_in(k));
  }

  void reduce(std::size_t k) {
    PointerLists& lists = session_.scratch();
    const Slice own = slice(k, session_.rank());
    std::byte* in_place = data_ + k * kChunkBytes + own.begin;
    for (int i = 0; i < session_.size(); ++i)
      lists.sources[static_cast<std::size_t>(i)] =
          i == session_.rank() ? in_place : session_.board().chunk(i, k) + own.begin;
    void* destination = in_place;
    kernel_({lists.sources.data(), session_.size()}, {&destination, 1}, own.bytes / element_bytes_);
    stream_bytes(session_.board().chunk(session_.rank(), k) + own.begin, in_place, own.bytes);
    session_.post(reduced(k));
  }

  void copy_out(std::size_t k) {
    for (int i = 0; i < session_.size(); ++i) {
      if (i == session_.rank()) continue;
      const Slice part = slice(k, i);
      copy_bytes(data_ + k * kChunkBytes + part.begin, session_.board().chunk(i, k) + part.begin, part.bytes);
    }
  }

  Session& session_;
  std::byte* data_;
  std::size_t bytes_;
  std::size_t element_bytes_;
  ReduceKernel kernel_;
  std::size_t rounds_;
};

}  // namespace

void run_all_reduce(Session& session, const Call& call, Path path) {
  switch (path) {
    case Path::kNothing:
      return;
    case Path::kInline:
      return reduce_inline(session, call);
    case Path::kStaged:
      return reduce_staged(session, call);
    case Path::kDirect:
      return reduce_direct(session, call);
    case Path::kChunked:
      return ChunkedReduction(session, call).run();
  }
}

}  // namespace retinue
