/// Trains a residual network on Fashion-MNIST with random crops and flips, and continues from its checkpoints.
///
/// With --checkpoints FOLDER a run that was interrupted, also by SIGKILL, continues where it was and ends with the bits
/// of an undisturbed one: `retinue run -n 2 --max-restarts 3 train_resnet --checkpoints FOLDER`.
/// Exit code 0: trained as well as asked for. 1: anything else.
#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <cereal/types/string.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numbers>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "fashion_mnist_model.h"
#include "retinue/launch/spawn.h"
#include "retinue/torch/checkpoint.h"
#include "retinue/torch/data_loader.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/distributed_sampler.h"
#include "retinue/torch/image_transforms.h"
#include "retinue/torch/load_once.h"
#include "retinue/torch/process_group.h"
#include "retinue/torch/sharded_optimizer.h"

namespace nn = torch::nn;
using fashion_mnist::ImageBatches;
using retinue::ProcessGroup;
using retinue::RankContext;

namespace {

nn::Conv2d convolution(int inputs, int outputs, int stride) {
  return nn::Conv2d(nn::Conv2dOptions(inputs, outputs, 3).stride(stride).padding(1).bias(false));
}

struct BlockImpl : nn::Module {
  BlockImpl(int inputs, int outputs, int stride)
      : first(register_module("first", convolution(inputs, outputs, stride))),
        second(register_module("second", convolution(outputs, outputs, 1))),
        first_norm(register_module("first_norm", nn::BatchNorm2d(outputs))),
        second_norm(register_module("second_norm", nn::BatchNorm2d(outputs))) {
    if (inputs == outputs) return;
    const auto options = nn::Conv2dOptions(inputs, outputs, 1).stride(stride).bias(false);
    shortcut = register_module("shortcut", nn::Conv2d(options));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = second_norm(second(torch::relu(first_norm(first(x)))));
    return torch::relu(y + (shortcut.is_empty() ? x : shortcut(x)));
  }

  nn::Conv2d first, second, shortcut{nullptr};
  nn::BatchNorm2d first_norm, second_norm;
};
TORCH_MODULE(Block);

/// 20 layers: 272,000 parameters.
struct ResNetImpl : nn::Module {
  ResNetImpl() {
    layers->push_back(convolution(1, 16, 1));
    layers->push_back(nn::BatchNorm2d(16));
    layers->push_back(nn::ReLU());
    int width = 16;
    for (const int outputs : {16, 32, 64}) {
      for (int block = 0; block < 3; ++block) {
        layers->push_back(Block(width, outputs, width == outputs ? 1 : 2));
        width = outputs;
      }
    }
    register_module("layers", layers);
    register_module("output", output);
  }
  torch::Tensor forward(torch::Tensor x) { return output(layers->forward(x).mean({2, 3})); }

  nn::Sequential layers;
  nn::Linear output{64, fashion_mnist::kClasses};
};
TORCH_MODULE(ResNet);

using Model = retinue::DistributedDataParallel<ResNet>;

struct Flags {
  int nprocs = 2;
  int epochs = 5;
  int batch_size = 64;
  double lr = 0.1;
  bool share_parameters = false;
  std::string data;
  std::string checkpoints;
  std::int64_t checkpoint_every = 100;
  std::int64_t seed = 0;
  double min_accuracy = 0.92;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(nprocs, epochs, batch_size, lr, share_parameters, data, checkpoints, checkpoint_every, seed, min_accuracy);
  }
};

/// One cycle: a tenth of the steps up, the rest down as a cosine.
double learning_rate(double highest, std::int64_t step, std::int64_t steps) {
  const double done = static_cast<double>(step) / static_cast<double>(steps);
  if (done < 0.1) return highest * (0.04 + 0.96 * done / 0.1);
  return highest * 0.5 * (1 + std::cos(std::numbers::pi * (done - 0.1) / 0.9));
}

// [optimizer]
std::unique_ptr<torch::optim::Optimizer> make_optimizer(Model& model, const Flags& flags) {
  const auto options = torch::optim::SGDOptions(flags.lr).momentum(0.9).weight_decay(5e-4).nesterov(true);
  if (flags.share_parameters) return std::make_unique<retinue::ShardedOptimizer<torch::optim::SGD>>(model, options);
  return std::make_unique<torch::optim::SGD>(model.parameters(), options);
}
// [/optimizer]

/// A number that changes with any bit of the parameters.
std::uint64_t parameter_bits(const Model& model) {
  std::uint64_t sum = 0;
  for (const torch::Tensor& parameter : model.parameters()) {
    const torch::Tensor bits = parameter.detach().contiguous().view({-1}).view(torch::kInt32).to(torch::kInt64);
    sum = sum * 31 + static_cast<std::uint64_t>((bits * torch::arange(1, bits.numel() + 1)).sum().item<std::int64_t>());
  }
  return sum;
}

// [accuracy]
/// The share of test images that the model names right: each rank looks at its part, and all get the sum.
double test_accuracy(Model& model, const ImageBatches& images) {
  const ProcessGroup& group = model.group();
  const auto [data, target] = images.part(group->getRank(), group->getSize());
  model->eval();
  const std::int64_t right =
      fashion_mnist::count_right([&](const torch::Tensor& x) { return model->forward(x); }, data, target);
  torch::Tensor right_and_all = torch::tensor({right, data.size(0)});
  retinue::all_reduce(right_and_all, group);
  return right_and_all[0].item<double>() / right_and_all[1].item<double>();
}
// [/accuracy]

/// Where a training stands.
struct Progress {
  std::int64_t step = 0;
  std::int64_t last_step = 0;
  std::int64_t images = 0;  ///< Of all ranks, in this run.
};

// [epoch]
/// Trains on what is left of the sampler's epoch. Returns the mean loss of this rank.
template <class Loader>
double train_epoch(Model& model, torch::optim::Optimizer& optimizer, Loader& loader, Progress& progress,
                   retinue::CheckpointState& state, retinue::Checkpoint* checkpoint, const Flags& flags) {
  double loss_sum = 0;
  std::int64_t batches = 0;
  for (const auto& [data, target] : loader) {
    optimizer.param_groups().front().options().set_lr(learning_rate(flags.lr, progress.step, progress.last_step));
    optimizer.zero_grad();
    const torch::Tensor loss = nn::functional::cross_entropy(model.forward(data), target);
    loss.backward();
    optimizer.step();
    loss_sum += loss.item<double>();
    ++batches;
    progress.images += data.size(0) * model.group()->getSize();
    state.consumed = loader.consumed();
    if (++progress.step % flags.checkpoint_every == 0 && checkpoint != nullptr) checkpoint->save(progress.step, state);
  }
  return loss_sum / static_cast<double>(batches);
}
// [/epoch]

void train(RankContext& context, const Flags& flags) {
  // [setup]
  torch::set_num_threads(context.cpus_per_rank());
  torch::manual_seed(flags.seed);
  const ProcessGroup group = retinue::init_process_group(context);
  // One rank of each host reads the files; the others map the same memory.
  const auto dataset = retinue::load_once_per_host(
      group, [&] { return fashion_mnist::read_dataset(fashion_mnist::data_folder(flags.data)); });
  const retinue::ImageDataset images(dataset.training.images, dataset.training.labels,
                                     {.padding = 2,
                                      .random_crop = retinue::ImageSize{28, 28},
                                      .horizontal_flip = 0.5,
                                      .mean = {0.286},
                                      .std = {0.353}});
  retinue::DistributedSampler sampler(*images.size(), group, {.seed = flags.seed, .drop_last = true});
  const auto batch_size = static_cast<std::size_t>(flags.batch_size);
  const auto loader = retinue::make_data_loader(
      images, sampler, {.batch_size = batch_size, .drop_last = true, .seed = static_cast<std::uint64_t>(flags.seed)});

  Model model(ResNet(), group, {.share_parameters = flags.share_parameters});
  const auto optimizer = make_optimizer(model, flags);
  // [/setup]
  const auto batches = static_cast<std::int64_t>(sampler.size() / batch_size);
  if (batches == 0) throw std::invalid_argument("the training images of a rank are fewer than one batch");

  // [loop]
  Progress progress{.last_step = batches * flags.epochs};
  std::optional<retinue::Checkpoint> checkpoint;
  retinue::CheckpointState state{.model = model, .optimizer = *optimizer, .sampler = sampler};
  if (!flags.checkpoints.empty()) {
    checkpoint.emplace(flags.checkpoints, group, retinue::CheckpointOptions{.keep = 2, .async = true});
    progress.step = checkpoint->load_newest(state).value_or(0);
    if (context.rank() == 0) fmt::print("continues after step {}\n", progress.step);
  }
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t epoch = sampler.epoch(); epoch < flags.epochs; ++epoch) {
    sampler.set_epoch(epoch);  // Otherwise every epoch has the same order.
    const double loss =
        train_epoch(model, *optimizer, *loader, progress, state, checkpoint ? &*checkpoint : nullptr, flags);
    if (context.rank() == 0) fmt::print("epoch {}/{}  loss {:.4f}\n", epoch + 1, flags.epochs, loss);
    std::fflush(stdout);
  }
  if (checkpoint) checkpoint->wait();
  // [/loop]
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  const double accuracy = test_accuracy(model, ImageBatches(dataset.test));
  if (accuracy < flags.min_accuracy)
    throw std::runtime_error(fmt::format("test accuracy {:.4f} is below {:.4f}", accuracy, flags.min_accuracy));
  if (context.rank() == 0)
    fmt::print("train_resnet: ok accuracy={:.4f} ranks={} images_per_s={:.0f} parameters={:016x}\n", accuracy,
               context.world_size(), static_cast<double>(progress.images) / seconds, parameter_bits(model));
}

void add_flags(CLI::App& app, Flags& flags) {
  const auto positive = CLI::PositiveNumber;
  app.add_option("--nprocs", flags.nprocs, "Ranks to start")->check(positive)->capture_default_str();
  app.add_option("--epochs", flags.epochs, "Passes over the training images")->check(positive)->capture_default_str();
  app.add_option("--batch-size", flags.batch_size, "Images per step and rank")->check(positive)->capture_default_str();
  app.add_option("--lr", flags.lr, "Highest learning rate")->check(positive)->capture_default_str();
  app.add_flag("--share-parameters", flags.share_parameters, "One copy of the parameters for all ranks of the host");
  app.add_option("--data", flags.data, "Folder of the gzipped IDX files (else RETINUE_DATA, else Debian's)");
  app.add_option("--checkpoints", flags.checkpoints, "Folder to save checkpoints in, and to continue from");
  app.add_option("--checkpoint-every", flags.checkpoint_every, "Steps between checkpoints")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--seed", flags.seed, "Seed of parameters, order and crops")->capture_default_str();
  app.add_option("--min-accuracy", flags.min_accuracy, "Test accuracy below which the run has failed")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  CLI::App app("Trains a residual network on Fashion-MNIST with data-parallel ranks.");
  Flags flags;
  add_flags(app, flags);
  CLI11_PARSE(app, argc, argv);
  try {
    // [main]
    if (runtime.is_rank()) {  // Started by `retinue run`.
      RankContext context = runtime.rank_context();
      train(context, flags);
    } else {
      retinue::spawn<train>({.nprocs = flags.nprocs}, flags);
    }
    // [/main]
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "train_resnet: failed: {}\n", error.what());
    return 1;
  }
}
