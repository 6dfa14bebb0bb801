#include "torch/parallel/pipeline_run.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

#include "retinue/base/error.h"
#include "retinue/torch/messages.h"

namespace retinue {
namespace {

constexpr int kHeaderTag = 0x1F1B0;
constexpr int kTensorTag = 0x1F1B1;
constexpr std::int64_t kMostPipelineDimensions = 16;

/// What comes before each tensor.
enum Header : std::int64_t { kState, kScalarType, kDimensionCount, kFirstSize };
constexpr std::int64_t kHeaderSize = kFirstSize + kMostPipelineDimensions;

std::string text_of_current_exception() {
  try {
    throw;
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that isn't a std::exception";
  }
}

c10::Device device_of(const torch::nn::Sequential& module) {
  for (const at::Tensor& parameter : module->parameters()) return parameter.device();
  return c10::Device(c10::DeviceType::CPU);
}

}  // namespace

PipelineRun::PipelineRun(const PipelineStage& stage, const Schedule1F1BOptions& options, const PipelineBatch& batch,
                         bool has_backward, const std::source_location& where)
    : stage_(stage),
      options_(options),
      batch_(batch),
      has_backward_(has_backward),
      where_(where),
      device_(device_of(stage.submodule())),
      passages_(static_cast<std::size_t>(options.n_microbatches)),
      is_lost_(static_cast<std::size_t>(stage.num_stages())) {
  if (stage.is_first()) inputs_ = batch.input.tensor_split(options.n_microbatches);
  if (stage.is_last() && (has_backward || batch.target.defined()))
    targets_ = batch.target.tensor_split(options.n_microbatches);
}

bool PipelineRun::guard(const std::string& what, const std::function<void()>& body) {
  try {
    body();
    return true;
  } catch (...) {
    has_failed_ = true;
    if (!error_) {
      error_ = std::current_exception();
      problem_ = c10::str("in ", what, ": ", text_of_current_exception());
    }
    return false;
  }
}

void PipelineRun::run() {
  const std::size_t count = passages_.size();
  const std::size_t ahead =
      has_backward_ ? std::min(count, static_cast<std::size_t>(stage_.num_stages() - stage_.stage_index())) : count;
  std::size_t next_forward = 0;
  while (next_forward < ahead) forward(next_forward++);
  for (std::size_t micro = 0; has_backward_ && micro < count; ++micro) {
    backward(micro);
    if (next_forward < count) forward(next_forward++);
  }
  for (const Sent& sent : sent_)
    if (sent.work) guard("sending", [&] { sent.work->wait(); });
  sent_.clear();
}

at::Tensor PipelineRun::compute(std::size_t micro, const at::Tensor& input) {
  at::Tensor output = stage_.submodule().ptr()->forward(input);
  if (!stage_.is_last()) {
    if (!output.defined() || output.layout() != at::kStrided || output.dim() > kMostPipelineDimensions)
      throw UsageError(c10::str("Schedule1F1B: a stage must return a dense tensor of at most ", kMostPipelineDimensions,
                                " dimensions"));
    return output;
  }
  outputs_.push_back(output.detach());
  if (targets_.empty()) return output;
  at::Tensor loss = options_.loss_fn(output, targets_[micro]);
  if (!loss.defined() || loss.numel() != 1)
    throw UsageError("Schedule1F1B: loss_fn must return a tensor of one element");
  losses_.push_back(loss.detach());
  return loss;
}

void PipelineRun::forward(std::size_t micro) {
  Message input{.state = State::kTensor};
  if (stage_.is_first())
    input.tensor = inputs_[micro];
  else
    input = receive(stage_.stage_index() - 1, "the activations", micro);
  Passage& passage = passages_[micro];
  if (!has_failed_)
    guard(c10::str("the forward of micro-batch ", micro), [&] {
      const bool has_gradient = input.tensor.is_floating_point() || input.tensor.is_complex();
      if (has_backward_ && !stage_.is_first() && has_gradient) input.tensor.requires_grad_();
      passage = {.input = input.tensor, .result = compute(micro, input.tensor)};
    });
  if (!stage_.is_last()) {
    const State state = has_failed_ ? State::kFailed : State::kTensor;
    const at::Tensor output = has_failed_ ? at::Tensor() : passage.result.detach();
    send(stage_.stage_index() + 1, {.state = state, .tensor = output}, "the activations", micro);
  }
  if (!has_backward_ || has_failed_) passage = {};
}

void PipelineRun::backward(std::size_t micro) {
  Message gradient{.state = State::kNone};
  if (!stage_.is_last()) gradient = receive(stage_.stage_index() + 1, "the gradients", micro);
  Passage passage = std::exchange(passages_[micro], {});
  Message back{.state = State::kNone};
  if (!has_failed_)
    guard(c10::str("the backward of micro-batch ", micro), [&] {
      const bool has_gradient = stage_.is_last() || gradient.state == State::kTensor;
      if (stage_.is_last() && options_.scale_grads)
        gradient.tensor =
            at::ones_like(passage.result)
                .mul_(static_cast<double>(targets_[micro].size(0)) / static_cast<double>(batch_.target.size(0)));
      if (has_gradient && passage.result.requires_grad()) passage.result.backward(gradient.tensor);
      if (stage_.is_first() || !passage.input.requires_grad()) return;
      const at::Tensor& of_input = passage.input.grad();
      back = {.state = State::kTensor, .tensor = of_input.defined() ? of_input : at::zeros_like(passage.input)};
    });
  if (stage_.is_first()) return;
  if (has_failed_) back = {.state = State::kFailed};
  send(stage_.stage_index() - 1, back, "the gradients", micro);
}

PipelineRun::Message PipelineRun::receive(int peer, const char* what, std::size_t micro) {
  Message message;
  char& is_lost = is_lost_[static_cast<std::size_t>(peer)];
  const bool is_received =
      is_lost == 0 && guard(c10::str("the receive of ", what, " of micro-batch ", micro, " from rank ", peer), [&] {
        const at::Tensor header = at::empty({kHeaderSize}, at::kLong);
        recv(header, stage_.group(), peer, kHeaderTag, where_);
        const auto* const told = header.const_data_ptr<std::int64_t>();
        message.state = static_cast<State>(told[kState]);
        if (message.state != State::kTensor) return;
        message.tensor = at::empty(at::IntArrayRef(told + kFirstSize, static_cast<std::size_t>(told[kDimensionCount])),
                                   at::TensorOptions(static_cast<at::ScalarType>(told[kScalarType])).device(device_));
        recv(message.tensor, stage_.group(), peer, kTensorTag, where_);
      });
  if (!is_received) {
    is_lost = 1;
    message = {};
  }
  if (message.state == State::kFailed) has_failed_ = true;
  return message;
}

void PipelineRun::send(int peer, Message message, const char* what, std::size_t micro) {
  const char& is_lost = is_lost_[static_cast<std::size_t>(peer)];
  if (is_lost != 0) return;
  const std::string text = c10::str("the send of ", what, " of micro-batch ", micro, " to rank ", peer);
  guard(text, [&] { forget_sent(); });
  // The tensor first: the receiver would wait for one that can't be sent.
  if (has_failed_ || (message.state == State::kTensor &&
                      !guard(text, [&] { start_send(peer, message.tensor.contiguous(), kTensorTag); })))
    message = {.state = State::kFailed};
  guard(text, [&] { start_send(peer, header_of(message), kHeaderTag); });
}

at::Tensor PipelineRun::header_of(const Message& message) {
  at::Tensor header = at::zeros({kHeaderSize}, at::kLong);
  auto* const told = header.data_ptr<std::int64_t>();
  told[kState] = static_cast<std::int64_t>(message.state);
  if (message.state == State::kTensor) {
    told[kScalarType] = static_cast<std::int64_t>(message.tensor.scalar_type());
    told[kDimensionCount] = message.tensor.dim();
    std::ranges::copy(message.tensor.sizes(), told + kFirstSize);
  }
  return header;
}

void PipelineRun::start_send(int peer, const at::Tensor& tensor, int tag) {
  sent_.push_back({.work = isend(tensor, stage_.group(), peer, tag, where_), .tensor = tensor});
}

void PipelineRun::forget_sent() {
  while (!sent_.empty() && (!sent_.front().work || sent_.front().work->isCompleted())) {
    if (sent_.front().work) sent_.front().work->wait();  // Throws its error.
    sent_.pop_front();
  }
}

at::Tensor PipelineRun::output() const {
  if (outputs_.empty()) return {};
  return outputs_.front().dim() == 0 ? at::stack(outputs_) : at::cat(outputs_);
}

}  // namespace retinue
