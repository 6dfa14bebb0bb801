/// Trains with checkpoints, continues at the newest one, and prints the bits of the result.
///
/// Arguments: the folder, the optimizer ("SGD" or "AdamW"), and for each life of the job who is killed and when, as
/// RANK:STEP:MICROSECONDS, counted from the begin of that step.
#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "retinue/launch/runtime.h"
#include "retinue/torch/checkpoint.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/distributed_sampler.h"
#include "retinue/torch/process_group.h"

namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;

constexpr std::int64_t kSteps = 40;
constexpr std::int64_t kStepsPerCheckpoint = 3;
constexpr std::size_t kItems = 50;
constexpr std::size_t kBatch = 4;

struct Kill {
  int rank = -1;
  std::int64_t step = -1;
  int microseconds = 0;
};

/// Of this life; nobody's in a life that has none.
Kill planned_kill(int argc, char** argv) {
  const char* const restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
  const int place = 3 + (restarts == nullptr ? 0 : std::atoi(restarts));
  Kill kill;
  if (place < argc)
    std::sscanf(argv[place], "%d:%ld:%d", &kill.rank, &kill.step, &kill.microseconds);  // NOLINT(cert-err34-c)
  return kill;
}

void kill_this_process_in(int microseconds) {
  std::thread([microseconds] {
    std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
    kill(getpid(), SIGKILL);
  }).detach();
}

at::Tensor item(std::size_t index) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(index);
  return torch::randn({16}, generator);
}

std::unique_ptr<optim::Optimizer> make_optimizer(const std::string& name, const std::vector<at::Tensor>& parameters) {
  if (name == "SGD") return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.05).momentum(0.9));
  return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions(0.01));
}

class Training {
 public:
  Training(const char* folder, const std::string& optimizer, const Kill& kill)
      : group_(retinue::init_process_group()),
        net_(nn::Linear(16, 64), nn::Dropout(0.5), nn::Tanh(), nn::Linear(64, 300), nn::Tanh(), nn::Linear(300, 1)),
        model_(net_, group_),
        optimizer_(make_optimizer(optimizer, model_.parameters())),
        sampler_(kItems, group_, {.seed = 9}),
        checkpoint_(folder, group_, {.keep = 2, .async = true}),
        kill_(kill) {
    torch::manual_seed(100 + static_cast<std::uint64_t>(group_->getRank()));
  }

  void run() {
    step_ = checkpoint_.load_newest(state(0)).value_or(0);
    for (std::int64_t epoch = sampler_.epoch(); step_ < kSteps; ++epoch) {
      sampler_.set_epoch(epoch);
      sampler_.reset();
      std::size_t consumed = 0;
      while (step_ < kSteps) {
        const auto batch = sampler_.next(kBatch);
        if (!batch) break;
        consumed += batch->size();
        train(*batch);
        if (step_ % kStepsPerCheckpoint == 0) checkpoint_.save(step_, state(consumed));
      }
    }
    checkpoint_.wait();
    if (group_->getRank() == 0) print_bits();
  }

 private:
  retinue::CheckpointState state(std::size_t consumed) {
    return {.model = model_, .optimizer = *optimizer_, .sampler = sampler_, .consumed = consumed};
  }

  void train(const std::vector<std::size_t>& batch) {
    if (group_->getRank() == kill_.rank && step_ == kill_.step) kill_this_process_in(kill_.microseconds);
    optimizer_->param_groups().front().options().set_lr(optimizer_->param_groups().front().options().get_lr() * 0.98);
    optimizer_->zero_grad();
    std::vector<at::Tensor> items;
    for (const std::size_t index : batch) items.push_back(item(index));
    model_(torch::stack(items)).square().mean().backward();
    optimizer_->step();
    ++step_;
  }

  void print_bits() const {
    std::uint64_t digest = 0xcbf29ce484222325u;
    for (const at::Tensor& parameter : net_->parameters()) {
      const at::Tensor bits = parameter.detach().contiguous().view(torch::kInt);
      for (std::int64_t i = 0; i < bits.numel(); ++i)
        digest = (digest ^ static_cast<std::uint64_t>(bits.const_data_ptr<int>()[i])) * 0x100000001b3u;
    }
    std::printf("bits %016llx after step %lld\n", static_cast<unsigned long long>(digest),
                static_cast<long long>(step_));
  }

  retinue::ProcessGroup group_;
  nn::Sequential net_;
  retinue::DistributedDataParallel<nn::Sequential> model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  retinue::DistributedSampler sampler_;
  retinue::Checkpoint checkpoint_;
  Kill kill_;
  std::int64_t step_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  torch::set_num_threads(1);
  torch::manual_seed(1);
  Training(argv[1], argv[2], planned_kill(argc, argv)).run();
}
