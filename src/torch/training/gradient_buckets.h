#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/gradient_hooks.h"
#include "retinue/torch/process_group.h"
#include "torch/tensors/tensor_slots.h"

namespace retinue {

/// Reduces tensors in place, in a call that errors name as the backward's. Null where it is done.
c10::intrusive_ptr<c10d::Work> reduce_in_backward(const ProcessGroup& group, std::vector<at::Tensor> tensors,
                                                  c10d::ReduceOp op, bool async_op);

/// The memory in which gradients lie while they become averages over the ranks of a group, and stay afterwards.
///
/// Where ranks share memory, that is job memory: backward makes gradients in slots of it, and what it made elsewhere is
/// copied once. While somebody has the gradient that lies in a slot, the parameter's next one gets other memory.
class GradientBuckets {
 public:
  struct Options {
    std::size_t cap_mb;
    ReducerKind reducer = ReducerKind::kAuto;
    std::shared_ptr<GradientHook> hook = nullptr;
    bool others_read = false;  ///< Other ranks read gradients where they lie: all are in job memory.
  };

  /// `parameters`: the same on all ranks.
  GradientBuckets(ProcessGroup group, std::vector<at::Tensor> parameters, const Options& options);

  /// From now on buckets are averaged as soon as they are full, unless ranks share memory: those meet once in a
  /// backward, not once in each bucket, where now the one is late and now the other. Nothing is lost by it: the ranks'
  /// own threads do the averaging, and have gradients to compute until then.
  void overlap() { overlaps_ = group_->getSize() > 1 && !slots_; }
  /// Whether averaging begins before all gradients are there.
  bool overlaps() const { return overlaps_; }

  /// Before the first gradient of a backward.
  void begin();
  /// A parameter has its gradient of this backward, or none. Called once for each by hooks of its accumulator, where
  /// buckets overlap.
  void ready(std::size_t parameter);
  /// From now on it is not expected before all others are there: it mostly has no dense gradient.
  void exclude(std::size_t parameter);
  /// Starts what waits for gradients that don't come, where buckets overlap, so that the ranks stay in step.
  void start_rest();
  /// Places and averages those gradients that `takes_part` says and that aren't in a bucket which began already.
  void start_agreed(std::span<const char> takes_part);
  /// Blocking: until all that was started is done. Errors: those of collectives.
  void wait();
  /// Moves a parameter's gradient, zeros where it has none, to where it can be averaged.
  void place(std::size_t parameter, bool in_hook);

 private:
  struct Bucket {
    std::vector<std::size_t> parameters;
    std::size_t missing = 0;
  };

  void assign_buckets(std::size_t cap_mb);
  void make_slots(const std::shared_ptr<JobMemory>& memory);
  bool is_placed(std::size_t parameter, const at::Tensor& gradient, bool in_hook) const;
  at::Tensor make_gradient(std::size_t parameter);
  void start_next();
  void start_placed(GradBucket bucket, const std::vector<std::size_t>& parameters, std::span<const char> takes_part);
  void start(GradBucket bucket);

  ProcessGroup group_;
  std::vector<at::Tensor> parameters_;
  std::shared_ptr<GradientHook> hook_;
  bool overlaps_ = false;
  bool others_read_;
  std::unique_ptr<TensorSlots> slots_;  ///< Null: gradients may lie anywhere.
  std::vector<at::Tensor> layouts_;     ///< By parameter, of its gradients; on the meta device.
                                        /// By parameter: its gradient that was averaged last, if that is still there.
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> placed_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  ///< By parameter.
  std::vector<std::size_t> excluded_;

  // Of one backward.
  std::size_t next_bucket_ = 0;
  std::vector<char> is_ready_;
  std::vector<std::function<void()>> waits_;
};

}  // namespace retinue
