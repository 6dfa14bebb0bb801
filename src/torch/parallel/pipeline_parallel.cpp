#include "retinue/torch/pipeline_parallel.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <cmath>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "retinue/base/error.h"
#include "torch/groups/make_group.h"
#include "torch/groups/rank_agreement.h"
#include "torch/parallel/average_tensors.h"
#include "torch/parallel/pipeline_run.h"

namespace retinue {
namespace {

constexpr const char* kSchedule = "Schedule1F1B";

std::int64_t count_elements(const std::vector<at::Tensor>& tensors) {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  return count;
}

/// Gives all ranks that have the same stage the parameters and buffers of the first one.
void take_values_of_first(const torch::nn::Sequential& module, const ProcessGroup& group,
                          const std::source_location& where) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors = module->parameters();
  for (const at::Tensor& buffer : module->buffers()) tensors.push_back(buffer);
  const RankNumbers all =
      agree("PipelineStage", group, {static_cast<std::int64_t>(tensors.size()), count_elements(tensors)}, {}, where);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw UsageError(
          c10::str("PipelineStage: the ranks of the data_parallel_group have different modules: rank 0 has ", all[0][0],
                   " parameters and buffers of ", all[0][1], " elements, but rank ", rank, " has ", all[rank][0],
                   " of ", all[rank][1]));
  for (const at::Tensor& tensor : tensors) broadcast(tensor.detach(), group, {}, where);
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "unknown";
  }
}

std::string problem_of_rows(const char* name, const at::Tensor& tensor, int n_microbatches) {
  if (tensor.defined() && tensor.dim() > 0 && tensor.size(0) >= n_microbatches) return {};
  return c10::str("the ", name, " is ", tensor.defined() ? c10::str("of shape ", tensor.sizes()) : "undefined",
                  ": it needs a row for each of ", n_microbatches, " micro-batches");
}

/// Blocking: a small collective. Errors: UsageError on all ranks of the pipeline.
void compare_batches(const PipelineStage& stage, int n_microbatches, const PipelineBatch& batch, bool has_backward,
                     const std::source_location& where) {
  std::string problem;
  std::int64_t rows = -1;
  const bool has_target = stage.is_last() && (has_backward || batch.target.defined());
  if (has_target) problem = problem_of_rows("target", batch.target, n_microbatches);
  if (has_target && problem.empty()) rows = batch.target.size(0);
  if (stage.is_first() && problem.empty()) problem = problem_of_rows("input", batch.input, n_microbatches);
  const std::int64_t input_rows = stage.is_first() && problem.empty() ? batch.input.size(0) : -1;
  const RankNumbers all = agree(kSchedule, stage.group(), {has_backward, input_rows, rows}, problem, where);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank][0] != all[0][0])
      throw UsageError(c10::str(kSchedule, ": rank 0 calls ", all[0][0] ? "step" : "eval", ", but rank ", rank,
                                " calls ", all[rank][0] ? "step" : "eval"));
  if (all.back()[2] >= 0 && all.back()[2] != all.front()[1])
    throw UsageError(c10::str(kSchedule, ": the input of rank 0 has ", all.front()[1], " rows, but the target of rank ",
                              all.size() - 1, " has ", all.back()[2]));
}

}  // namespace

std::vector<torch::nn::Sequential> split_sequential(const torch::nn::Sequential& model,
                                                    const std::vector<std::size_t>& split_points) {
  std::size_t before = 0;
  for (const std::size_t point : split_points) {
    if (point <= before || point >= model->size())
      throw UsageError(c10::str("split_sequential: the split points are ", split_points, " for a model of ",
                                model->size(), " modules: they must ascend, between 1 and the last module"));
    before = point;
  }
  std::vector<torch::nn::Sequential> parts(1);
  std::size_t index = 0;
  for (const auto& child : model->named_children()) {
    if (parts.size() <= split_points.size() && index == split_points[parts.size() - 1]) parts.emplace_back();
    parts.back()->push_back(child.key(), *(model->begin() + static_cast<std::ptrdiff_t>(index)));
    ++index;
  }
  return parts;
}

std::vector<torch::nn::Sequential> split_by_parameters(const torch::nn::Sequential& model, int num_stages) {
  const auto modules = static_cast<std::int64_t>(model->size());
  if (num_stages < 1 || modules < num_stages)
    throw UsageError(c10::str("split_by_parameters: a model of ", modules, " modules can't be divided into ",
                              num_stages, " stages, of at least one module each"));
  const double share = static_cast<double>(count_elements(model->parameters())) / num_stages;
  std::vector<std::size_t> points;
  double so_far = 0;
  for (std::int64_t index = 0; index < modules && static_cast<int>(points.size()) + 1 < num_stages; ++index) {
    const auto own = static_cast<double>(count_elements((*model)[static_cast<std::size_t>(index)]->parameters()));
    const std::int64_t stages_to_come = num_stages - 1 - static_cast<std::int64_t>(points.size());
    const double wanted = share * static_cast<double>(points.size() + 1);
    const bool is_full = std::abs(so_far - wanted) <= std::abs(so_far + own - wanted);
    const auto first = static_cast<std::int64_t>(points.empty() ? 0 : points.back());
    if (index > first && (is_full || modules - index == stages_to_come))
      points.push_back(static_cast<std::size_t>(index));
    so_far += own;
  }
  return split_sequential(model, points);
}

PipelineStage::PipelineStage(torch::nn::Sequential submodule, ProcessGroup group, PipelineStageOptions options,
                             std::source_location where)
    : submodule_(std::move(submodule)), group_(std::move(group)), options_(std::move(options)) {
  checked_group("PipelineStage", group_);
  if (submodule_.is_empty() || submodule_->is_empty())
    throw UsageError("PipelineStage: the module is empty: a stage needs at least one layer, such as nn::Identity");
  if (options_.data_parallel_group) take_values_of_first(submodule_, options_.data_parallel_group, where);
}

Schedule1F1B::Schedule1F1B(PipelineStage stage, Schedule1F1BOptions options, std::source_location where)
    : stage_(std::move(stage)), options_(std::move(options)) {
  std::string problem;
  if (options_.n_microbatches < 1)
    problem = c10::str("n_microbatches is ", options_.n_microbatches, ": it must be 1 or more");
  else if (stage_.is_last() && !options_.loss_fn)
    problem = "loss_fn is empty: the last stage needs one";
  const RankNumbers all = agree(
      kSchedule, stage_.group(),
      {options_.n_microbatches, options_.scale_grads, static_cast<bool>(stage_.data_parallel_group())}, problem, where);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw UsageError(c10::str(kSchedule, ": the ranks' options differ: rank 0 has n_microbatches ", all[0][0],
                                ", scale_grads ", all[0][1], " and ", all[0][2] ? "a" : "no",
                                " data_parallel_group, but rank ", rank, " has ", all[rank][0], ", ", all[rank][1],
                                " and ", all[rank][2] ? "one" : "none"));
}

at::Tensor Schedule1F1B::step(const PipelineBatch& batch, std::source_location where) {
  const c10::AutoGradMode with_gradients(true);
  return run(batch, /*has_backward=*/true, where);
}

at::Tensor Schedule1F1B::eval(const PipelineBatch& batch, std::source_location where) {
  const c10::NoGradGuard no_grad;
  return run(batch, /*has_backward=*/false, where);
}

at::Tensor Schedule1F1B::run(const PipelineBatch& batch, bool has_backward, const std::source_location& where) {
  std::unique_ptr<PipelineRun> run;
  std::exception_ptr error;
  std::string problem;
  const auto attempt = [&](const auto& part) {
    try {
      part();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  };
  attempt([&] {
    compare_batches(stage_, options_.n_microbatches, batch, has_backward, where);
    run = std::make_unique<PipelineRun>(stage_, options_, batch, has_backward, where);
    run->run();
    error = run->error();
    problem = run->problem();
    agree(kSchedule, stage_.group(), {}, problem, where);
  });
  if (stage_.data_parallel_group()) {
    if (error && problem.empty()) problem = c10::str("its pipeline failed: ", text_of(error));
    attempt([&] { agree(kSchedule, stage_.data_parallel_group(), {}, problem, where); });
  }
  if (error) std::rethrow_exception(error);
  if (has_backward && stage_.data_parallel_group()) average_gradients(where);
  if (batch.losses != nullptr && stage_.is_last()) *batch.losses = run->losses();
  return run->output();
}

/// Gradients that no rank has stay undefined.
void Schedule1F1B::average_gradients(const std::source_location& where) const {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> parameters = stage_.submodule()->parameters();
  std::erase_if(parameters, [](const at::Tensor& parameter) { return !parameter.requires_grad(); });
  const at::Tensor exists = at::zeros({static_cast<std::int64_t>(parameters.size())}, at::kByte);
  auto* const flags = exists.data_ptr<std::uint8_t>();
  for (std::size_t i = 0; i < parameters.size(); ++i) flags[i] = parameters[i].grad().defined();
  all_reduce(exists, stage_.data_parallel_group(), {.op = c10d::ReduceOp::MAX}, where);
  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (flags[i] == 0) continue;
    at::Tensor& gradient = parameters[i].mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(parameters[i]);
    gradients.push_back(gradient);
  }
  average_over_ranks(gradients, stage_.data_parallel_group(), where);
}

}  // namespace retinue
