#include "torch/optim/optimizer_slices.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "retinue/base/deadline.h"

namespace retinue {
namespace {

constexpr std::chrono::seconds kPatience{5};

}  // namespace

std::vector<ElementRange> slice_of(const FlatLayout& layout, const std::vector<at::Tensor>& parameters, int rank,
                                   int ranks) {
  const auto size = static_cast<std::int64_t>(layout.bytes) / ranks;
  const std::int64_t first = rank * size;
  std::vector<ElementRange> ranges;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto place = static_cast<std::int64_t>(layout.begins[i]);
    const auto element = static_cast<std::int64_t>(parameters[i].element_size());
    // Slices begin at multiples of the layout's alignment, and so between elements.
    const std::int64_t begin = std::max(first - place, std::int64_t{0}) / element;
    const std::int64_t end = std::min((first + size - place) / element, parameters[i].numel());
    if (begin < end) ranges.push_back({i, begin, end});
  }
  return ranges;
}

at::Tensor elements_of(const at::Tensor& tensor, std::int64_t begin, std::int64_t end) {
  return tensor.as_strided({end - begin}, {1}, tensor.storage_offset() + begin);
}

UndoLog::UndoLog(const std::vector<at::Tensor>& parameters, const FlatLayout& layout, const ProcessGroup& group,
                 const std::source_location& where)
    : parameters_(parameters), layout_(layout), rank_(group->getRank()), ranks_(group->getSize()) {
  const c10::NoGradGuard no_grad;
  const std::size_t table = FlatLayout::kAlignment * static_cast<std::size_t>(ranks_);
  const at::Tensor memory = make_shared_memory("ShardedOptimizer", layout_.bytes + table, group, where);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    kept_.push_back(at::empty({0}, parameters_[i].options().requires_grad(false))
                        .set_(memory.storage(),
                              static_cast<std::int64_t>(layout_.begins[i] / parameters_[i].element_size()),
                              {parameters_[i].numel()}, {1}));
  progress_ = memory.narrow(0, static_cast<std::int64_t>(layout_.bytes), static_cast<std::int64_t>(table));
  progress_of(rank_) = {};
  barrier(group, {}, where);
}

UndoLog::Progress& UndoLog::progress_of(int rank) const {
  auto* const bytes = static_cast<std::byte*>(progress_.data_ptr());
  return *reinterpret_cast<Progress*>(bytes + FlatLayout::kAlignment * static_cast<std::size_t>(rank));
}

void UndoLog::begin_step() {
  Progress& progress = progress_of(rank_);
  progress.kept = 0;
  std::atomic_ref(progress.begun).store(progress.begun + 1, std::memory_order_release);
}

void UndoLog::keep(const ElementRange& range, const at::Tensor& values) {
  Progress& progress = progress_of(rank_);
  elements_of(kept_[range.parameter], range.begin, range.end).copy_(values);
  const auto count = static_cast<std::uint64_t>(range.end - range.begin);
  // Who reads that they are kept sees their values.
  std::atomic_ref(progress.kept).store(progress.kept + count, std::memory_order_release);
}

void UndoLog::end_step() {
  Progress& progress = progress_of(rank_);
  std::atomic_ref(progress.ended).store(progress.begun, std::memory_order_release);
}

void UndoLog::undo(const std::vector<int>& lost) const {
  const c10::NoGradGuard no_grad;
  const std::uint64_t step = progress_of(rank_).begun;
  const auto has_ended = [&](int rank) {
    return std::atomic_ref(progress_of(rank).ended).load(std::memory_order_acquire) >= step;
  };
  std::atomic_ref(progress_of(rank_).failed).store(step, std::memory_order_release);
  // Ranks that go on may still write. They end by the same error, or are stopped.
  const Deadline deadline = Deadline::after(kPatience);
  for (int rank = 0; rank < ranks_; ++rank) {
    if (std::ranges::find(lost, rank) != lost.end()) continue;
    const auto writes = [&] {
      return !has_ended(rank) && std::atomic_ref(progress_of(rank).failed).load(std::memory_order_acquire) < step;
    };
    while (writes() && !deadline.passed()) std::this_thread::sleep_for(deadline.left(std::chrono::microseconds(200)));
  }
  std::vector<int> asked = lost;
  for (int rank = 0; lost.empty() && rank < ranks_; ++rank) asked.push_back(rank);
  bool is_undone = false;  // By one that waited no longer for a rank that has ended since.
  for (int rank = 0; rank < ranks_; ++rank)
    is_undone |= std::atomic_ref(progress_of(rank).undone).load(std::memory_order_acquire) >= step;
  if (!is_undone && std::ranges::all_of(asked, has_ended)) return;
  std::atomic_ref(progress_of(rank_).undone).store(step, std::memory_order_release);
  for (int rank = 0; rank < ranks_; ++rank) {
    if (std::atomic_ref(progress_of(rank).begun).load(std::memory_order_acquire) < step) continue;
    auto left = static_cast<std::int64_t>(std::atomic_ref(progress_of(rank).kept).load(std::memory_order_acquire));
    for (const ElementRange& range : slice_of(layout_, parameters_, rank, ranks_)) {
      const std::int64_t end = std::min(range.end, range.begin + left);
      if (end <= range.begin) break;
      elements_of(parameters_[range.parameter], range.begin, end)
          .copy_(elements_of(kept_[range.parameter], range.begin, end));
      left -= end - range.begin;
    }
  }
}

}  // namespace retinue
