// What a member tells of its list of buffers, and how members find out where theirs differ.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "collective/diagnosis/report.h"
#include "collective/session/session.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {
namespace {

/// As many sizes, behind their number, as fit a member's chunks, which lie one behind the other.
constexpr std::size_t kMostSizes = kChunkBuffers * kChunkBytes / sizeof(std::uint64_t) - 1;

std::uint64_t* sizes_of(const Board& board, int rank) {
  return reinterpret_cast<std::uint64_t*>(board.chunk(rank, 0));
}

/// How the lists of two ranks differ.
std::string difference(const Board& board, int one, int other) {
  const std::uint64_t* ours = sizes_of(board, one);
  const std::uint64_t* theirs = sizes_of(board, other);
  if (ours[0] != theirs[0])
    return fmt::format("rank {} passes {} buffers and rank {} passes {}", one, ours[0], other, theirs[0]);
  for (std::size_t i = 1; i <= std::min<std::size_t>(ours[0], kMostSizes); ++i)
    if (ours[i] != theirs[i])
      return fmt::format("buffer {} has {} bytes on rank {} and {} on rank {}", i - 1, ours[i], one, theirs[i], other);
  return fmt::format("one of the buffers from {} on has different sizes on ranks {} and {}", kMostSizes, one, other);
}

}  // namespace

std::uint8_t Session::stage_buffers(const Call& call) {
  buffers_.set(call.what.outputs);
  const std::size_t bytes = call.part_bytes();
  if (bytes == 0) return kInJobMemory | kStaged;  // Wherever the others' are.
  const auto is_in_job = [this](const Bytes& buffer) {
    return buffer.empty() || memory().contains(buffer.data(), buffer.size());
  };
  const auto buffers = buffers_.buffers();
  const bool in_job = buffers.size() <= kMostListedBuffers && std::all_of(buffers.begin(), buffers.end(), is_in_job);
  const std::uint8_t place = in_job ? kInJobMemory | kListed : kPrivateMemory;
  if (stages_first(paths_.table, call.pattern, size(), bytes, in_job)) {
    buffers_.gather(own_stage(bytes), 0, bytes);
    return place | kStaged;
  }
  if (!in_job) return place;
  auto* offset = reinterpret_cast<std::uint64_t*>(own_stage(buffers.size() * sizeof(std::uint64_t)));
  for (const Bytes& buffer : buffers) *offset++ = buffer.empty() ? 0 : memory().offset_of(buffer.data());
  return place;
}

void Session::check_buffers() {
  const auto differs_from = [&](int one, int other) {
    return line(one).count.load(std::memory_order_relaxed) != line(other).count.load(std::memory_order_relaxed) ||
           line(one).inline_data[0].load(std::memory_order_relaxed) !=
               line(other).inline_data[0].load(std::memory_order_relaxed);
  };
  int other = 1;
  while (other < size() && !differs_from(0, other)) ++other;
  if (other >= size()) return;
  if (puts_aside_) {  // Who may not wait for the others' sizes.
    break_group_once(FailureKind::kMismatch,
                     Reporter(group_, board_, sequence_)
                         .different_buffers(fmt::format("the buffers of ranks 0 and {} have different sizes", other)),
                     {});
    leave();
  }
  // All members see this, so all come here. Nobody has used a chunk in this call.
  const auto buffers = buffers_.buffers();
  std::uint64_t* sizes = sizes_of(board_, rank());
  *sizes++ = buffers.size();
  for (std::size_t i = 0; i < std::min(buffers.size(), kMostSizes); ++i) *sizes++ = buffers[i].size();
  post(1);
  has_posted({0, size()}, 1);
  break_group_once(FailureKind::kMismatch,
                   Reporter(group_, board_, sequence_).different_buffers(difference(board_, 0, other)), {});
  leave();
}

}  // namespace retinue
