#include "torch/gloo/gloo_engine.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "retinue/base/error.h"

namespace retinue {
namespace {

/// Up to so many bytes in all every rank sends to each, which is one step; gloo's all_gather is a ring of p - 1.
constexpr std::size_t kGatheredAtOnce = std::size_t{64} << 10;

/// When who waits looks for ranks that are gone for the first time, and then ever more rarely.
constexpr std::chrono::milliseconds kFirstSearch(500);
constexpr std::chrono::milliseconds kLongestLook(60'000);
constexpr int kTagOfLooks = (1 << 29) - 1;  // Of none of gloo's operations, nor of messages.

bool is_done_within(c10d::Work& work, std::chrono::milliseconds time) {
  try {
    work.wait(time);
    return true;
  } catch (...) {
    // Or it ended by an error, which wait() throws again.
    return work.isCompleted();
  }
}

std::vector<std::int64_t> counts_of(std::span<const std::size_t> parts) {
  return {parts.begin(), parts.end()};
}

}  // namespace

at::Tensor tensor_of(ConstBytes bytes) {
  if (bytes.empty()) return at::empty({0}, at::kByte);
  return at::from_blob(const_cast<std::byte*>(bytes.data()), {static_cast<std::int64_t>(bytes.size())}, at::kByte);
}

template <typename Start>
void GlooEngine::run(Start start) {
  link_->peers().checked("", [&] { await(*link_->begin(*gloo_, start)); });
}

/// A send that begins in the moment in which its connection closes is never told so: who waits for long looks.
void GlooEngine::await(c10d::Work& work) {
  using Clock = std::chrono::steady_clock;
  Clock::duration between_searches = kFirstSearch;
  Clock::time_point next_search = Clock::now() + between_searches;
  while (true) {
    is_stuck_ = true;
    const Clock::time_point next_look = Clock::now() + std::min<std::chrono::nanoseconds>(look_(), kLongestLook);
    is_stuck_ = false;
    const auto time = std::chrono::ceil<std::chrono::milliseconds>(std::min(next_search, next_look) - Clock::now());
    if (is_done_within(work, std::max(time, std::chrono::milliseconds(1)))) break;
    if (Clock::now() < next_search) continue;
    is_stuck_ = true;
    look_for_lost_ranks(work);
    is_stuck_ = false;
    between_searches = std::min<Clock::duration>(between_searches * 2, kLongestLook);
    next_search = Clock::now() + between_searches;
  }
  work.wait();
}

/// To begin a receive of a rank that is gone is an error. Nobody sends what these are of.
void GlooEngine::look_for_lost_ranks(c10d::Work& work) {
  for (int rank = 0; rank < size_ && !work.isCompleted(); ++rank) {
    if (rank == gloo_->getRank() || has_left_(rank)) continue;
    try {
      link_->begin(*gloo_, [&](c10d::Backend& gloo) {
        std::vector<at::Tensor> nothing{at::empty({1}, at::kByte)};
        return gloo.recv(nothing, rank, kTagOfLooks);
      });
    } catch (...) {
      if (!has_left_(rank)) throw;  // It may have in this moment.
    }
  }
}

void GlooEngine::close() noexcept {
  if (is_stuck_) {
    // Its end would wait for that thread; with the process's end all of it ends.
    static_cast<void>(gloo_.release());
    link_->leak();
  } else {
    gloo_.reset();
    link_->close();
  }
}

void GlooEngine::all_gather(ConstBytes input, Bytes output) {
  if (output.size() <= kGatheredAtOnce) {
    const std::vector<std::size_t> parts(static_cast<std::size_t>(size_), input.size());
    std::vector<std::byte> copies;
    for (std::size_t i = 0; i < parts.size(); ++i) copies.insert(copies.end(), input.begin(), input.end());
    return all_to_all(copies, parts, output, parts);
  }
  at::Tensor from = tensor_of(input);
  at::Tensor to = tensor_of(output);
  c10d::AllgatherOptions options;
  options.timeout = timeout_;
  run([&](c10d::Backend& gloo) { return gloo._allgather_base(to, from, options); });
}

void GlooEngine::all_to_all(ConstBytes input, std::span<const std::size_t> input_parts, Bytes output,
                            std::span<const std::size_t> output_parts) {
  // Memory of its own, where it costs little: it may be read and written by gloo after an error of this rank's.
  const bool is_small = std::max(input.size(), output.size()) <= kGatheredAtOnce;
  at::Tensor from = is_small ? tensor_of(input).clone() : tensor_of(input);
  at::Tensor to = is_small ? at::empty({static_cast<std::int64_t>(output.size())}, at::kByte) : tensor_of(output);
  std::vector<std::int64_t> given = counts_of(input_parts);
  std::vector<std::int64_t> taken = counts_of(output_parts);
  c10d::AllToAllOptions options;
  options.timeout = timeout_;
  run([&](c10d::Backend& gloo) { return gloo.alltoall_base(to, from, taken, given, options); });
  if (is_small && !output.empty()) std::memcpy(output.data(), to.const_data_ptr(), output.size());
}

void GlooEngine::broadcast(Bytes data, int root) {
  std::vector<at::Tensor> tensors{tensor_of(data)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  options.timeout = timeout_;
  run([&](c10d::Backend& gloo) { return gloo.broadcast(tensors, options); });
}

void GlooEngine::set_timeout(std::chrono::nanoseconds timeout) {
  timeout_ = std::max(std::chrono::ceil<std::chrono::milliseconds>(timeout), std::chrono::milliseconds(1));
}

}  // namespace retinue
