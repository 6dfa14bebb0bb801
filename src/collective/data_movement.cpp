#include <cstring>

#include "collective/kernels.h"
#include "collective/paths.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {
namespace {

std::size_t rounds_of(std::size_t bytes) {
  return (bytes + kChunkBytes - 1) / kChunkBytes;
}
std::size_t round_bytes(std::size_t bytes, std::size_t k) {
  return std::min(kChunkBytes, bytes - k * kChunkBytes);
}

void broadcast_direct(Session& session, const Call& call, int root) {
  if (session.rank() != root)
    copy_bytes(call.output, session.memory().at(session.line(root).offset.load(std::memory_order_relaxed)),
               call.shape.bytes());
  session.post(1);
  if (session.rank() == root) session.await_release(1);
}

/// The root fills chunk k % kChunkBuffers once all have emptied it of round k - kChunkBuffers. It doesn't wait at the
/// end: the next collective begins when all have published their lines, which they do after their last copy.
void broadcast_chunked(Session& session, const Call& call, int root) {
  auto* data = static_cast<std::byte*>(call.output);
  const std::size_t bytes = call.shape.bytes();
  for (std::size_t k = 0; k < rounds_of(bytes); ++k) {
    std::byte* chunk = session.board().chunk(root, k);
    if (session.rank() == root) {
      if (k >= kChunkBuffers) session.await(k - kChunkBuffers + 1);
      stream_bytes(chunk, data + k * kChunkBytes, round_bytes(bytes, k));
    } else {
      session.await_one(k + 1, root);
      copy_bytes(data + k * kChunkBytes, chunk, round_bytes(bytes, k));
    }
    session.post(k + 1);
  }
}

std::byte* place_of_rank(const Call& call, int rank) {
  return static_cast<std::byte*>(call.output) + static_cast<std::size_t>(rank) * call.shape.bytes();
}

void keep_own_part(const Session& session, const Call& call) {
  std::byte* own = place_of_rank(call, session.rank());
  if (own != call.input) std::memmove(own, call.input, call.shape.bytes());
}

/// Copies what `source_of` names for each other member.
template <typename SourceOf>
void gather_from(const Session& session, const Call& call, SourceOf source_of) {
  // Each member begins with its neighbour, so that not all read the same buffer at once.
  for (int step = 1; step < session.size(); ++step) {
    const int i = (session.rank() + step) % session.size();
    copy_bytes(place_of_rank(call, i), source_of(i), call.shape.bytes());
  }
}

/// Filling a chunk for round k + 1 overwrites round k - 2, which the others copied out before they posted round k.
void gather_chunked(Session& session, const Call& call) {
  const auto* input = static_cast<const std::byte*>(call.input);
  const std::size_t bytes = call.shape.bytes();
  const std::size_t rounds = rounds_of(bytes);
  const auto fill = [&](std::size_t k) {
    stream_bytes(session.board().chunk(session.rank(), k), input + k * kChunkBytes, round_bytes(bytes, k));
    session.post(k + 1);
  };
  fill(0);
  for (std::size_t k = 0; k < rounds; ++k) {
    session.await(k + 1);
    if (k + 1 < rounds) fill(k + 1);
    for (int step = 1; step < session.size(); ++step) {
      const int i = (session.rank() + step) % session.size();
      copy_bytes(place_of_rank(call, i) + k * kChunkBytes, session.board().chunk(i, k), round_bytes(bytes, k));
    }
  }
}

}  // namespace

void run_broadcast(Session& session, const Call& call, Path path) {
  const int root = static_cast<int>(call.shape.root);
  const bool receives = session.rank() != root;
  switch (path) {
    case Path::kNothing:
      return;
    case Path::kInline:
      if (receives) copy_bytes(call.output, &session.line(root).inline_data, call.shape.bytes());
      return;
    case Path::kStaged:
      if (receives) copy_bytes(call.output, session.stage(root), call.shape.bytes());
      return;
    case Path::kDirect:
      return broadcast_direct(session, call, root);
    case Path::kChunked:
      return broadcast_chunked(session, call, root);
  }
}

void run_all_gather(Session& session, const Call& call, Path path) {
  if (call.shape.bytes() > 0) keep_own_part(session, call);
  switch (path) {
    case Path::kNothing:
      return;
    case Path::kInline:
      return gather_from(session, call, [&](int i) { return &session.line(i).inline_data; });
    case Path::kStaged:
      return gather_from(session, call, [&](int i) { return session.stage(i); });
    case Path::kDirect:
      gather_from(session, call,
                  [&](int i) { return session.memory().at(session.line(i).offset.load(std::memory_order_relaxed)); });
      session.post(1);
      return session.await_release(1);
    case Path::kChunked:
      return gather_chunked(session, call);
  }
}

}  // namespace retinue
