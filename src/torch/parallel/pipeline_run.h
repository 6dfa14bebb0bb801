#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <source_location>
#include <string>
#include <vector>

#include "retinue/torch/pipeline_parallel.h"

namespace retinue {

/// One batch on its way through this rank's stage.
///
/// After a failure, of this rank or of another one, the rest of the schedule goes on without computing: each message is
/// sent and received, but says "failed". So no rank waits for what doesn't come, and no message is left over.
class PipelineRun {
 public:
  /// `batch` has what this stage needs, with enough rows.
  PipelineRun(const PipelineStage& stage, const Schedule1F1BOptions& options, const PipelineBatch& batch,
              bool has_backward, const std::source_location& where);

  /// Blocking: until this stage is done. Throws nothing: see error().
  void run();

  /// Of this rank; null if there was none here.
  std::exception_ptr error() const { return error_; }
  /// What it was, in words; empty if there was none here.
  const std::string& problem() const { return problem_; }
  /// The joined outputs; undefined on other stages than the last.
  at::Tensor output() const;
  const std::vector<at::Tensor>& losses() const { return losses_; }

 private:
  enum class State : std::int64_t { kFailed, kTensor, kNone };
  struct Message {
    State state = State::kFailed;
    at::Tensor tensor = {};
  };
  struct Sent {
    Work work;
    at::Tensor tensor;  ///< Must live until the message is gone.
  };
  /// A micro-batch between its forward and its backward.
  struct Passage {
    at::Tensor input;
    at::Tensor result;  ///< The output, or on the last stage the loss.
  };

  void forward(std::size_t micro);
  void backward(std::size_t micro);
  at::Tensor compute(std::size_t micro, const at::Tensor& input);
  Message receive(int peer, const char* what, std::size_t micro);
  void send(int peer, Message message, const char* what, std::size_t micro);
  static at::Tensor header_of(const Message& message);
  void start_send(int peer, const at::Tensor& tensor, int tag);
  void forget_sent();
  /// Calls `body`; what it throws becomes this rank's failure.
  bool guard(const std::string& what, const std::function<void()>& body);

  const PipelineStage& stage_;
  const Schedule1F1BOptions& options_;
  const PipelineBatch& batch_;
  const bool has_backward_;
  const std::source_location where_;
  c10::Device device_;  ///< Where received tensors lie.

  std::vector<at::Tensor> inputs_;   ///< By micro-batch, on the first stage.
  std::vector<at::Tensor> targets_;  ///< By micro-batch, on the last stage.
  std::vector<Passage> passages_;    ///< By micro-batch.
  std::vector<at::Tensor> outputs_;
  std::vector<at::Tensor> losses_;
  std::deque<Sent> sent_;
  std::vector<char> is_lost_;  ///< By rank: no message reaches it, or comes from it.
  bool has_failed_ = false;    ///< Here or elsewhere.
  std::exception_ptr error_;
  std::string problem_;
};

}  // namespace retinue
