#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "retinue/torch/process_group.h"

namespace retinue {

/// Gradients that are averaged together. Shape: as many `parameters` as `gradients`, in the same order; none at all may
/// be in the last bucket.
struct GradBucket {
  std::size_t index = 0;  ///< Among the buckets of this backward.
  bool is_last = false;
  std::vector<at::Tensor> gradients = {};
  std::vector<at::Tensor> parameters = {};
};

/// How DistributedDataParallel averages gradients, in place of an all_reduce: PyTorch's communication hook.
///
/// Threads: called by the thread that is in backward(), for one bucket after the other, in the same order on all ranks.
class GradientHook {
 public:
  virtual ~GradientHook() = default;

  /// Starts to replace each of the bucket's gradients, in place, by what the ranks make of it. Returns a function that
  /// waits until that is done. Backward calls it when all buckets are started. Errors: both may throw; backward() then
  /// throws that error.
  virtual std::function<void()> start(const GradBucket& bucket, const ProcessGroup& group) = 0;
};

/// Sends gradients as 16-bit floats, which halves what is sent: each rank's gradient is divided by the number of ranks,
/// rounded, and summed in 16 bits. For slow networks; ranks that share memory only lose by it.
class Fp16Compress final : public GradientHook {
 public:
  std::function<void()> start(const GradBucket& bucket, const ProcessGroup& group) override;
};

/// Does the same with bfloat16, which has the range of float32.
class Bf16Compress final : public GradientHook {
 public:
  std::function<void()> start(const GradBucket& bucket, const ProcessGroup& group) override;
};

struct PowerSgdOptions {
  std::int64_t matrix_approximation_rank = 1;
  std::int64_t start_powerSGD_iter = 1000;  ///< Before this many backwards, gradients are averaged exactly.
  double min_compression_rate = 2;          ///< A gradient that would shrink by less is averaged exactly.
  bool use_error_feedback = true;           ///< Adds what one approximation lost to the next gradient.
  bool warm_start = true;                   ///< Each approximation begins with the last one's factors.
  double orthogonalization_epsilon = 0;     ///< Is added to norms, for gradients of low rank.
  std::uint64_t random_seed = 0;            ///< Equal on all ranks.
};

/// Sends two thin factors of each gradient that is a matrix: PowerSGD (Vogels et al. 2019), with PyTorch's options.
/// Convolutions count as matrices with a row for each output channel. The averages are approximations.
///
/// One object belongs to one DistributedDataParallel. Memory: with error feedback, as much again as the gradients.
/// Errors: UsageError for options out of range.
class PowerSgd final : public GradientHook {
 public:
  explicit PowerSgd(PowerSgdOptions options = {});
  ~PowerSgd() override;
  std::function<void()> start(const GradBucket& bucket, const ProcessGroup& group) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace retinue
