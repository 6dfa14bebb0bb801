#include "torch/optim/optimizer_shard.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

namespace retinue {
namespace {

/// With AdamW, 5 tensors of so many elements are in use: 1.3 MB of float32.
constexpr std::int64_t kPieceElements = std::int64_t{1} << 16;

}  // namespace

OptimizerShard::OptimizerShard(std::vector<at::Tensor> parameters, const std::vector<ElementRange>& ranges,
                               const std::vector<std::size_t>& group_of, OptimizerUpdate update, int rank, int ranks)
    : parameters_(std::move(parameters)), update_(update), rank_(rank), ranks_(ranks) {
  if (ranges.empty()) return;
  const at::Tensor& any = parameters_.front();
  std::int64_t widest = 0;
  for (const at::Tensor& parameter : parameters_) widest = std::max(widest, std::int64_t{parameter.element_size()});
  scratch_ = at::empty({2 * kPieceElements * widest}, any.options().dtype(at::kByte).requires_grad(false));
  for (const ElementRange& range : ranges) {
    slices_.push_back({.range = range, .group = group_of[range.parameter]});
    for (std::int64_t begin = range.begin; begin < range.end; begin += kPieceElements)
      add_piece(slices_.size() - 1, {range.parameter, begin, std::min(begin + kPieceElements, range.end)});
  }
}

void OptimizerShard::add_piece(std::size_t slice, const ElementRange& range) {
  const at::Tensor& parameter = parameters_[range.parameter];
  const auto fits = [&](const Piece& other) {
    return slices_[other.slice].group == slices_[slice].group &&
           parameters_[other.range.parameter].scalar_type() == parameter.scalar_type();
  };
  if (batches_.empty() || batch_elements_ >= kPieceElements || !fits(batches_.back().front())) {
    batches_.emplace_back();
    batch_elements_ = 0;
  }
  const at::Tensor values = elements_of(parameter.detach(), range.begin, range.end);
  const at::Tensor scratch =
      at::empty({0}, values.options()).set_(scratch_.storage(), batch_elements_, {values.numel()}, {1});
  batches_.back().push_back({.slice = slice,
                             .range = range,
                             .values = values,
                             .scratch = scratch,
                             .seen = std::vector<Seen>(static_cast<std::size_t>(ranks_))});
  batch_elements_ += values.numel();
}

/// A view does not keep its memory: gradients that are held by two don't stay where they are.
at::Tensor OptimizerShard::view_of(Piece& piece, int rank, std::byte* gradient) {
  Seen& seen = piece.seen[static_cast<std::size_t>(rank)];
  if (seen.data != gradient)
    seen = {gradient, at::from_blob(gradient + piece.range.begin * piece.values.element_size(), piece.values.sizes(),
                                    piece.values.options())};
  return seen.view;
}

/// In the order of ranks, as collectives do; undefined where no rank has a gradient.
at::Tensor OptimizerShard::sum_of(Piece& piece, const GradientOf& gradient_of, bool in_place) {
  std::vector<at::Tensor> views;
  const bool has_own = gradient_of(piece.range.parameter, rank_) != nullptr;
  for (int rank = 0; rank < ranks_; ++rank)
    if (std::byte* const data = gradient_of(piece.range.parameter, rank)) views.push_back(view_of(piece, rank, data));
  if (views.empty()) return {};
  if (views.size() == 1 && has_own) return views.front();
  at::Tensor sum = piece.scratch;
  if (views.size() == 1) sum.copy_(views[0]);
  if (views.size() > 1) at::add_out(sum, views[0], views[1]);
  for (std::size_t i = 2; i < views.size(); ++i) sum.add_(views[i]);
  if (!in_place) return sum;
  // Without a gradient of this rank, which is rare, a sum that is kept needs memory of its own.
  return has_own ? piece.seen[static_cast<std::size_t>(rank_)].view.copy_(sum) : sum.clone();
}

void OptimizerShard::sum(const GradientOf& gradient_of) {
  for (Batch& batch : batches_)
    for (Piece& piece : batch) piece.sum = sum_of(piece, gradient_of, /*in_place=*/true);
}

void OptimizerShard::for_each_sum(const std::function<void(const at::Tensor& sum)>& body) const {
  for (const Batch& batch : batches_)
    for (const Piece& piece : batch)
      if (piece.sum.defined()) body(piece.sum);
}

void OptimizerShard::load(std::size_t slice, ElementState state) {
  slices_[slice].state = std::move(state);
  for (Batch& batch : batches_)
    for (Piece& piece : batch)
      if (piece.slice == slice) piece.first = piece.second = piece.third = at::Tensor();
}

void OptimizerShard::collect(Piece& piece, const at::Tensor& gradient, const torch::optim::OptimizerOptions& options) {
  Slice& slice = slices_[piece.slice];
  ElementState& state = slice.state;
  const std::int64_t begin = piece.range.begin - slice.range.begin;
  const std::int64_t end = piece.range.end - slice.range.begin;
  if (begin == 0) {
    ++state.step;
    if (!slice.step.defined()) slice.step = at::empty({}, piece.values.options().dtype(at::kFloat));
    slice.step.fill_(static_cast<double>(state.step));
  }
  const at::Tensor all = elements_of(parameters_[slice.range.parameter].detach(), slice.range.begin, slice.range.end);
  slice.is_first = begin == 0 ? update_.prepare(state, all, options) : slice.is_first;
  const auto view = [&](at::Tensor& part, const at::Tensor& whole) {
    if (whole.defined() && !part.defined()) part = whole.narrow(0, begin, end - begin);
  };
  view(piece.first, state.first);
  view(piece.second, state.second);
  view(piece.third, state.third);
  ElementLists& lists = slice.is_first ? first_lists_ : lists_;
  lists.values.push_back(piece.values);
  lists.gradients.push_back(gradient);
  lists.steps.push_back(slice.step);
  if (piece.first.defined()) lists.first.push_back(piece.first);
  if (piece.second.defined()) lists.second.push_back(piece.second);
  if (piece.third.defined()) lists.third.push_back(piece.third);
}

void OptimizerShard::step(const GradientOf& gradient_of, const std::vector<torch::optim::OptimizerParamGroup>& groups,
                          const Step& step) {
  for (Batch& batch : batches_) {
    const torch::optim::OptimizerOptions& options = groups[slices_[batch.front().slice].group].options();
    lists_.clear();
    first_lists_.clear();
    for (Piece& piece : batch) {
      if (step.undo != nullptr) step.undo->keep(piece.range, piece.values);
      const at::Tensor gradient = step.has_sums ? piece.sum : sum_of(piece, gradient_of, /*in_place=*/false);
      if (gradient.defined()) collect(piece, gradient, options);
    }
    update_.update(lists_, options, /*is_first=*/false, step.gradient_scale);
    update_.update(first_lists_, options, /*is_first=*/true, step.gradient_scale);
  }
}

}  // namespace retinue
