#include <fcntl.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "retinue/torch/checkpoint.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "torch/training_nets.h"
#include "torch_contenders.h"

namespace retinue::bench {
namespace {

namespace fs = std::filesystem;

/// In the temporary folder (TMPDIR); rank 0 makes and removes it.
class BenchFolder {
 public:
  explicit BenchFolder(ProcessGroup group)
      : group_(std::move(group)), path_(fs::temp_directory_path() / "retinue-bench-checkpoints") {
    if (is_root()) fs::create_directories(path_);
    settle();
  }
  ~BenchFolder() {
    if (is_root()) fs::remove_all(path_);
  }
  BenchFolder(const BenchFolder&) = delete;
  BenchFolder& operator=(const BenchFolder&) = delete;

  const fs::path& path() const { return path_; }
  /// Removes a file, and waits until the disk has nothing left to do.
  void remove(const fs::path& file) const {
    barrier(group_);
    if (is_root()) fs::remove(file);
    settle();
  }
  void settle() const {
    if (is_root()) sync();
    barrier(group_);
  }

 private:
  bool is_root() const { return group_->getRank() == 0; }

  ProcessGroup group_;
  fs::path path_;
};

/// What a program could do at best: each rank writes its bytes to a file of its own, and waits for the disk.
void write_plain_file(const fs::path& path, const at::Tensor& tensor) {
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) throw std::runtime_error("cannot create " + path.string());
  const auto* const data = static_cast<const char*>(tensor.const_data_ptr());
  for (std::size_t done = 0; done < tensor.nbytes();) {
    const ssize_t written = write(file, data + done, std::min(kChunk, tensor.nbytes() - done));
    if (written <= 0) throw std::runtime_error("cannot write " + path.string());
    done += static_cast<std::size_t>(written);
  }
  if (fsync(file) != 0) throw std::runtime_error("cannot write " + path.string());
  close(file);
}

void measure_saves(RankContext& context, const CheckpointRound& round, const ProcessGroup& group) {
  const BenchFolder folder(group);
  constexpr std::int64_t kTensors = 64;
  const bool is_checkpoint = round.mode == CheckpointRound::Mode::kSave;
  const auto floats = static_cast<std::int64_t>(round.bytes / sizeof(float));
  torch::nn::Module module;
  for (std::int64_t i = 0; is_checkpoint && i < kTensors; ++i)
    module.register_parameter(std::to_string(i), torch::rand({floats / kTensors}), /*requires_grad=*/false);
  const at::Tensor share = is_checkpoint ? at::Tensor() : torch::rand({floats / group->getSize()});
  Checkpoint checkpoint(folder.path(), group);
  const fs::path own_file = folder.path() / std::to_string(group->getRank());
  measure_iterations(
      round, context, [&](int) { folder.settle(); },
      [&] {
        if (is_checkpoint)
          checkpoint.save(1, {.model = module});
        else
          write_plain_file(own_file, share);
      },
      [&](int) {
        barrier(group);
        fs::remove(own_file);
        folder.remove(checkpoint.path(1));
      });
}

void measure_steps_while_saving(RankContext& context, const CheckpointRound& round, const ProcessGroup& group) {
  const BenchFolder folder(group);
  const NetCase& which = kNets[kNetOfCheckpoints];
  torch::manual_seed(0);
  DistributedDataParallel<std::shared_ptr<Net>> model(make_net(which), group);
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-5));
  const at::Tensor data = make_batch(which, 0).data;
  Checkpoint checkpoint(folder.path(), group, {.keep = 1, .async = true});
  const bool is_saving = round.mode == CheckpointRound::Mode::kStepSaving;
  int iteration = 0;
  measure_iterations(
      round, context,
      [&](int i) {
        iteration = i;
        // The memory of copies is there after the first one, as in a training.
        if (is_saving && i == 0) checkpoint.wait();
      },
      [&] {
        if (is_saving && (iteration == -1 || iteration == 0))
          checkpoint.save(iteration + 1, {.model = model, .optimizer = optimizer});
        optimizer.zero_grad();
        model.forward(data).square().mean().backward();
        optimizer.step();
      },
      [](int) {});
  checkpoint.wait();
  if (is_saving && checkpoint.steps().empty()) throw std::runtime_error("checkpoint: nothing was saved");
  barrier(group);
}

void saving_rank(RankContext& context, const CheckpointRound& round) {
  torch::set_num_threads(1);
  const ProcessGroup group = init_process_group(context);
  const bool has_steps = round.mode == CheckpointRound::Mode::kStep || round.mode == CheckpointRound::Mode::kStepSaving;
  if (has_steps)
    measure_steps_while_saving(context, round, group);
  else
    measure_saves(context, round, group);
}

}  // namespace

Spans checkpoint_spans(int ranks, const CheckpointRound& round) {
  return measure_round<saving_rank>(ranks, round);
}

}  // namespace retinue::bench
