#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <iosfwd>
#include <source_location>

#include "retinue/torch/process_group.h"

namespace retinue {

/// torch.nn.SyncBatchNorm: batch norm over the batches of all ranks of a group, on CPUs too. It computes what one
/// process with BatchNorm1d, 2d or 3d would compute over the joined batch. In eval mode it is BatchNorm.
///
/// The options are BatchNorm's. Parameters and buffers have BatchNorm's names and shapes, so each loads the other's
/// state. Running statistics are the same on all ranks.
///
/// Shape: input [batch, channels, ...]; ranks may have different batches, some of them empty. Together they have more
/// than one value for each channel.
/// Gradient: backward computes the gradient of the sum of all ranks' losses; for weight and bias only this rank's part,
/// as in PyTorch: DistributedDataParallel averages it with the other parameters.
/// Blocking: forward in training mode, and backward, wait for the other ranks, at most the group's timeout.
/// Threads: any, if all ranks make the same calls in the same order; of a backward, autograd's.
/// Errors of forward in training mode: UsageError on all ranks if one rank's input is invalid, or if one rank calls
/// under NoGradGuard and another one's input requires a gradient; CollectiveMismatch for different numbers of channels;
/// PeerLost, TimeoutError, also out of backward; UsageError of a backward with create_graph. After an error: after
/// UsageError the group is usable. Cost: one collective in forward and one in backward, of two numbers per channel.
class SyncBatchNormImpl : public torch::nn::NormImplBase<0, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  /// Makes the module; it doesn't wait. Errors: UsageError for a null group.
  SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, ProcessGroup group,
                    std::source_location where = std::source_location::current());

  at::Tensor forward(const at::Tensor& input);
  const ProcessGroup& group() const { return group_; }
  void pretty_print(std::ostream& stream) const override;

  class Conversion;

 protected:
  // NOLINTNEXTLINE(readability-identifier-naming): LibTorch's name
  void _check_input_dim(const at::Tensor& input) override;

 private:
  double count_batch();

  ProcessGroup group_;
  std::source_location where_;
};
TORCH_MODULE(SyncBatchNorm);

/// Puts a SyncBatchNorm in place of each BatchNorm1d, 2d and 3d of a module, with the same parameters and buffers.
///
/// LibTorch's modules call the members that they declare, so only what is in a torch::nn::Sequential can be replaced,
/// at any depth. Errors: UsageError, before anything is changed, which names a batch norm that is elsewhere: declare
/// that one as SyncBatchNorm, or put it into a Sequential.
void convert_sync_batchnorm(torch::nn::Module& module, const ProcessGroup& group,
                            std::source_location where = std::source_location::current());

}  // namespace retinue
