#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <source_location>
#include <vector>

#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/distributed_sampler.h"
#include "retinue/torch/process_group.h"
#include "retinue/torch/sharded_state.h"

namespace retinue {

struct CheckpointOptions {
  /// After each save only the files of so many steps stay: the highest ones, and always the one just saved. 0: all.
  std::size_t keep = 0;
  /// save() copies what this rank writes, and a thread writes it while the program goes on. Costs the memory of the
  /// copy: all bytes, divided by the number of ranks. It is allocated once.
  bool async = false;
};

/// A model in a CheckpointState: a DistributedDataParallel, a module holder such as torch::nn::Sequential, or a module.
/// Names are those of the module itself, as in Python's state_dict(), without "module.".
class CheckpointModel {
 public:
  CheckpointModel() = default;
  // NOLINTBEGIN(google-explicit-constructor): written as the model itself.
  template <class Net>
  CheckpointModel(const DistributedDataParallel<Net>& model) : module_(&model.module()) {}
  template <class Module>
  CheckpointModel(const torch::nn::ModuleHolder<Module>& model) : module_(model.ptr().get()) {}
  CheckpointModel(torch::nn::Module& model) : module_(&model) {}
  // NOLINTEND(google-explicit-constructor)

  torch::nn::Module* get() const { return module_; }

 private:
  torch::nn::Module* module_ = nullptr;
};

/// A reference to an object, or none.
template <class T>
class CheckpointPart {
 public:
  CheckpointPart() = default;
  CheckpointPart(T& object) : object_(&object) {}  // NOLINT(google-explicit-constructor): written as the object.

  T* get() const { return object_; }

 private:
  T* object_ = nullptr;
};

/// What a checkpoint saves and loads. It refers to these objects, all of which may be left out.
struct CheckpointState {
  /// Parameters are the same on all ranks. Buffers may differ: rank 0's are saved, and all ranks load them.
  CheckpointModel model = {};
  /// LibTorch's SGD, Adam, AdamW, RMSprop or Adagrad, with the same state on all ranks, or with a ShardedState; also an
  /// optimizer with save() and load() of its own, of which rank 0's archive is saved.
  CheckpointPart<torch::optim::Optimizer> optimizer = {};
  /// Rank 0's is saved. After loading, the next pass has the indices that are left, for any number of ranks.
  CheckpointPart<DistributedSampler> sampler = {};
  /// Of save(): how many indices this rank's loop has consumed since its pass began (DistributedSampler::state()).
  std::size_t consumed = 0;
  /// Each rank's random generators: torch's for CPU tensors, and the generator of the model's GPU. Rank r loads what
  /// rank r saved. With more ranks than saved, the others keep what they have.
  bool random_generators = true;
};

/// Saves what a training needs to continue, and loads it: one file for each saved step, of which each rank writes a
/// part.
///
/// The file `step-000000123.pt` in `folder` is one that Python's torch.load() reads with its defaults. A save writes to
/// another name, waits until all is on the disk, and renames the file. A file of that name is therefore complete, and
/// unfinished ones are ignored. If a rank or the machine fails during a save, the checkpoint before it is the newest.
/// The folder must be the same one on all ranks, and belong to one job at a time. Save between steps: gradients are not
/// saved.
///
/// A continued run has the bits of an undisturbed one, if the training itself is deterministic, the number of ranks is
/// the same, and buffers don't differ between ranks.
///
/// All ranks make the same calls in the same order, with states of the same parts. Threads: one call at a time.
/// Errors: on all ranks, also if only one of them failed. UsageError for what can't be saved or loaded; SystemError,
/// with the file's name, for files. Also the errors of collectives.
class Checkpoint {
 public:
  /// Makes the folder if it is missing. `group`: of Retinue's backends.
  /// Blocking: as new_group(). Errors: as new_group(); SystemError.
  Checkpoint(const std::filesystem::path& folder, ProcessGroup group, CheckpointOptions options = {},
             std::source_location where = std::source_location::current());
  /// Waits for a save that is under way, as wait(). An error that no call has thrown is printed on standard error.
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  /// Saves the state under the number `step`, which is at least 0. Replaces a file of the same step.
  ///
  /// Blocking: waits for the save before it, if that is still under way. Without `async`, then until the file is
  /// complete; with it, until this rank's part is copied.
  /// Errors: with `async`, an error of writing is thrown by the next call, whichever it is; that call does nothing
  /// else. UsageError for tensors that are sparse, quantized or of types that Python can't load; for an optimizer
  /// without save() of its own; if the ranks' parts differ. After an error: earlier files are unchanged, and the
  /// unfinished one is removed; the next call begins anew.
  void save(std::int64_t step, const CheckpointState& state,
            std::source_location where = std::source_location::current());

  /// Waits until the last save is complete. Errors: those of writing.
  void wait();

  /// Loads the highest step that was saved, and returns it; none if there is no file. Parts that `state` leaves out
  /// stay in the file.
  ///
  /// Blocking: until all ranks have loaded. Cost: each byte of the file is checked by one rank, then each rank reads
  /// all that it needs. Errors: UsageError if the file isn't a Checkpoint's, is damaged, or doesn't fit the state; it
  /// names the file and the tensor, and nothing is changed. SystemError, after which the state is unspecified.
  std::optional<std::int64_t> load_newest(const CheckpointState& state,
                                          std::source_location where = std::source_location::current());
  /// Does the same with the file of `step`. Errors: SystemError with ENOENT if there is none.
  void load(std::int64_t step, const CheckpointState& state,
            std::source_location where = std::source_location::current());

  /// Returns the steps of the complete files, as this rank sees them, in ascending order.
  std::vector<std::int64_t> steps() const;
  /// Returns the path of a step's file, whether there is one or not.
  std::filesystem::path path(std::int64_t step) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace retinue
