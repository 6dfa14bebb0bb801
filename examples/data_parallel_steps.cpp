// Steps of DistributedDataParallel that are more than one forward and one backward: several batches a step, bfloat16,
// ranks with different numbers of batches, and a training that goes on from a checkpoint.
#include <fmt/format.h>

#include <cereal/types/string.hpp>
#include <cstdlib>
#include <stdexcept>

#include "retinue/launch/spawn.h"

// [includes]
#include <torch/torch.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "retinue/torch/autocast.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/distributed_sampler.h"
#include "retinue/torch/gradient_hooks.h"
#include "retinue/torch/join.h"
#include "retinue/torch/model_averaging.h"
#include "retinue/torch/sync_batch_norm.h"

namespace nn = torch::nn;
using Model = retinue::DistributedDataParallel<nn::Sequential>;
using torch::Tensor;
// [/includes]

namespace {

constexpr std::int64_t kPoints = 256;
constexpr std::int64_t kBatch = 16;

nn::Sequential make_net() {
  return nn::Sequential(nn::Linear(1, 16), nn::Tanh(), nn::Linear(16, 1));
}

// [accumulate]
/// The mean error at these places of the function that is learned.
Tensor loss_of(Model& model, const Tensor& x) {
  return torch::mse_loss(model(x), torch::sin(3 * x));
}

/// One step of the optimizer for several batches.
void step(Model& model, torch::optim::Optimizer& optimizer, const std::vector<Tensor>& batches) {
  optimizer.zero_grad();
  for (std::size_t i = 0; i + 1 < batches.size(); ++i) {
    const auto alone = model.no_sync();  // Up to the end of this block.
    (loss_of(model, batches[i]) / batches.size()).backward();
  }
  (loss_of(model, batches.back()) / batches.size()).backward();  // Averages all that was added up.
  optimizer.step();
}
// [/accumulate]

// [autocast]
void step_in_bfloat16(Model& model, torch::optim::Optimizer& optimizer, const Tensor& x) {
  optimizer.zero_grad();
  Tensor output;
  {
    const retinue::Autocast autocast(torch::kCPU, torch::kBFloat16);  // Up to the end of this block.
    output = model(x);
  }
  torch::mse_loss(output.to(torch::kFloat32), torch::sin(3 * x)).backward();
  optimizer.step();
}
// [/autocast]

// [hook]
/// Sends half as many bytes over a slow network.
Model make_compressed_model(const retinue::ProcessGroup& group) {
  return Model(make_net(), group, {.hook = std::make_shared<retinue::Bf16Compress>()});
}
// [/hook]

// [sync_batch_norm]
/// Batch norm over the batches of all ranks.
Model make_with_batch_norm(const retinue::ProcessGroup& group) {
  nn::Sequential net(nn::Linear(1, 16), nn::BatchNorm1d(16), nn::Tanh(), nn::Linear(16, 1));
  retinue::convert_sync_batchnorm(*net, group);  // Or write retinue::SyncBatchNorm(16, group) in its place.
  return Model(net, group);
}
// [/sync_batch_norm]

// [local_sgd]
/// Local SGD: each rank trains on its own, and all average their models each fourth step.
double train_locally(nn::Sequential& net, const retinue::ProcessGroup& group, int steps) {
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  retinue::PeriodicModelAverager averager(group, {.period = 4});
  retinue::AveragedModel ema(net, {.multi_avg_fn = retinue::get_ema_multi_avg_fn(0.9)});
  for (int step = 0; step < steps; ++step) {
    const Tensor x = torch::rand({kBatch, 1});
    optimizer.zero_grad();
    torch::mse_loss(net->forward(x), torch::sin(3 * x)).backward();
    optimizer.step();
    if (averager.average_parameters(net->parameters())) ema.update_parameters(net);
  }
  const Tensor x = torch::linspace(0, 1, 64).unsqueeze(1);
  return torch::mse_loss(ema(x), torch::sin(3 * x)).item<double>();  // The same on all ranks.
}
// [/local_sgd]

// [uneven]
/// Trains on as many batches as this rank has, which may be more or fewer than others have.
void train_on_own_batches(Model& model, torch::optim::Optimizer& optimizer, std::int64_t batches) {
  retinue::join({.models = {&model}}, [&] {
    for (std::int64_t i = 0; i < batches; ++i) {
      optimizer.zero_grad();
      loss_of(model, torch::rand({kBatch, 1})).backward();
      optimizer.step();
    }
  });
}
// [/uneven]

// [save]
/// Rank 0 alone writes it: parameters and optimizers are the same on all ranks.
void save_checkpoint(const std::string& path, const nn::Sequential& net, const torch::optim::Optimizer& optimizer,
                     const retinue::DistributedSampler& sampler) {
  torch::serialize::OutputArchive all;
  const auto add = [&](const std::string& name, const auto& what) {
    torch::serialize::OutputArchive part;
    what.save(part);
    all.write(name, part);
  };
  add("net", *net);
  add("optimizer", optimizer);
  add("sampler", sampler);
  all.save_to(path + ".part");
  std::filesystem::rename(path + ".part", path);  // So there is a whole one at any time.
}
// [/save]

// [load]
/// All ranks read it, each for itself.
void load_checkpoint(const std::string& path, nn::Sequential& net, torch::optim::Optimizer& optimizer,
                     retinue::DistributedSampler& sampler) {
  torch::serialize::InputArchive all;
  all.load_from(path);
  const auto take = [&](const std::string& name, auto& what) {
    torch::serialize::InputArchive part;
    all.read(name, part);
    what.load(part);
  };
  take("net", *net);
  take("optimizer", optimizer);
  take("sampler", sampler);
}
// [/load]

// [resume]
/// Trains up to an epoch, from the checkpoint on if there is one.
double train_until(std::int64_t last_epoch, const std::string& path, const retinue::ProcessGroup& group) {
  nn::Sequential net = make_net();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  retinue::DistributedSampler sampler(kPoints, group, {.drop_last = true});
  std::int64_t epoch = 0;
  if (std::filesystem::exists(path)) {
    load_checkpoint(path, net, optimizer, sampler);
    epoch = sampler.epoch() + 1;
  }
  Model model(net, group);  // After loading.
  double loss = 0;
  for (; epoch < last_epoch; ++epoch) {
    sampler.set_epoch(epoch);
    sampler.reset();
    loss = 0;
    while (const auto indices = sampler.next(kBatch)) {
      optimizer.zero_grad();
      const std::vector<std::int64_t> points(indices->begin(), indices->end());
      const Tensor batch_loss = loss_of(model, torch::tensor(points).unsqueeze(1) / double{kPoints});
      batch_loss.backward();
      optimizer.step();
      loss += batch_loss.item<double>();
    }
    if (group->getRank() == 0) save_checkpoint(path, net, optimizer, sampler);
  }
  return loss;
}
// [/resume]

double trained_without_a_stop(const std::string& folder, const retinue::ProcessGroup& group) {
  torch::manual_seed(0);
  return train_until(6, folder + "/whole.pt", group);
}

double trained_with_a_stop(const std::string& folder, const retinue::ProcessGroup& group) {
  torch::manual_seed(0);
  train_until(3, folder + "/parts.pt", group);
  retinue::barrier(group);  // The file is there.
  return train_until(6, folder + "/parts.pt", group);
}

void expect(bool is_right, const char* what) {
  if (!is_right) throw std::runtime_error(what);
}

void show(retinue::RankContext& context, const std::string& folder) {
  torch::set_num_threads(1);
  const retinue::ProcessGroup group = retinue::init_process_group(context);
  torch::manual_seed(0);
  nn::Sequential net = make_net();
  Model model(net, group);
  torch::optim::SGD optimizer(net->parameters(), 0.1);

  constexpr std::int64_t batches = 40;
  const Tensor everywhere = torch::linspace(0, 1, 64).unsqueeze(1);
  const double before = loss_of(model, everywhere).item<double>();
  for (std::int64_t i = 0; i < batches; ++i) {
    step(model, optimizer, {torch::rand({kBatch, 1}), torch::rand({kBatch, 1})});
    step_in_bfloat16(model, optimizer, torch::rand({kBatch, 1}));
  }
  expect(net->parameters()[0].grad().scalar_type() == torch::kFloat32, "the gradients' type");
  train_on_own_batches(model, optimizer, context.rank() == 0 ? 5 : 8);
  Model compressed = make_compressed_model(group);
  loss_of(compressed, everywhere).backward();
  const double after = loss_of(model, everywhere).item<double>();
  nn::Sequential local = make_net();
  expect(train_locally(local, group, 61) < before / 2, "the loss of local SGD");
  Model normalised = make_with_batch_norm(group);
  loss_of(normalised, torch::rand({kBatch, 1})).backward();
  const double whole = trained_without_a_stop(folder, group);
  const double parts = trained_with_a_stop(folder, group);
  expect(whole == parts, "a training that was stopped");
  if (context.rank() == 0)
    fmt::print("{} steps of each kind, loss {}\n", batches, after < before / 2 ? "halved" : "as it was");
  if (context.rank() == 0) fmt::print("with and without a stop the same\n");
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  std::string folder = std::filesystem::temp_directory_path() / "data_parallel_steps-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return EXIT_FAILURE;
  retinue::spawn<show>({.nprocs = 2}, folder);
  std::filesystem::remove_all(folder);
}
