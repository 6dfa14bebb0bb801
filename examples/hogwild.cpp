/// Hogwild: ranks train one model in shared memory on Fashion-MNIST, without locks and without waiting for each other.
///
/// With --sync K ranks with models of their own, which send each other their parameters every K batches and go on with
/// the mean, are trained as well, and the loss curves of both are shown side by side.
/// Exit code 0: the shared model names the test images as well as asked for. 1: anything else.
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fashion_mnist_model.h"
// [includes]
#include "retinue/ipc/queue.h"
// [step_count]
#include "retinue/ipc/step_count.h"
// [/step_count]
#include "retinue/launch/spawn.h"
#include "retinue/torch/shared_tensor.h"
#include "retinue/torch/state_dict.h"
#include "retinue/torch/tensor_archive.h"
// [/includes]

using fashion_mnist::ImageBatches;
using fashion_mnist::Net;
using retinue::Queue;
using retinue::RankContext;
using retinue::StateDict;
using torch::Tensor;

namespace {

struct Flags {
  int nprocs = 2;
  int epochs = 1;
  int batch_size = 32;
  int sync = 0;
  double lr = 0.02;
  double min_accuracy = 0.87;
  std::string data;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(nprocs, epochs, batch_size, sync, lr, min_accuracy, data);
  }
};

/// The mean loss of some batches of a rank.
struct LossPoint {
  int rank;
  int point;
  double loss;
};
constexpr int kPoints = 10;

/// What the ranks share: the images, which nobody changes, and the model.
struct Shared {
  Tensor pixels;
  Tensor labels;
  Net net = nullptr;
  Queue<LossPoint> losses;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(pixels, labels, net, losses);
  }
};

/// One rank's batches: its share of the images, in an order of its own. The rate falls to zero on the way: at a high
/// one the last few steps, and with Hogwild their chance order, decide how good the model is.
template <class Step>
void train(const RankContext& context, Shared& shared, Net& net, const Flags& flags, Step after_batch) {
  torch::set_num_threads(context.cpus_per_rank());
  torch::manual_seed(context.rank());
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(flags.lr).momentum(0.9));
  const Tensor mine = torch::arange(context.rank(), shared.labels.size(0), context.world_size());
  const std::int64_t per_epoch = shared.labels.size(0) / context.world_size() / flags.batch_size;  // On all ranks.
  const std::int64_t batches = per_epoch * flags.epochs;
  double loss_sum = 0;
  std::int64_t batch = 0;
  std::int64_t summed = 0;
  for (int epoch = 0; epoch < flags.epochs; ++epoch) {
    const Tensor order = mine.index_select(0, torch::randperm(mine.size(0)));
    for (std::int64_t first = 0; first < per_epoch * flags.batch_size; first += flags.batch_size) {
      const Tensor picked = order.slice(0, first, first + flags.batch_size);
      optimizer.param_groups()[0].options().set_lr(flags.lr * static_cast<double>(batches - batch) /
                                                   static_cast<double>(batches));
      optimizer.zero_grad();
      const Tensor guess = net->forward(fashion_mnist::normalised(shared.pixels.index_select(0, picked)));
      const Tensor loss = torch::nn::functional::cross_entropy(guess, shared.labels.index_select(0, picked));
      // [step]
      loss.backward();
      optimizer.step();  // Into the shared parameters, while others do the same.
      retinue::count_step();
      // [/step]
      loss_sum += loss.item<double>();
      ++summed;
      ++batch;
      after_batch(batch);
      if (batch * kPoints / batches == (batch - 1) * kPoints / batches) continue;
      shared.losses.put(
          {context.rank(), static_cast<int>((batch - 1) * kPoints / batches), loss_sum / static_cast<double>(summed)});
      loss_sum = 0;
      summed = 0;
    }
  }
}

// [hogwild]
void train_together(RankContext& context, Shared shared, const Flags& flags) {
  train(context, shared, shared.net, flags, [](std::int64_t) {});
}
// [/hogwild]

struct Sent {
  int rank = 0;
  std::int64_t batch = 0;
  StateDict dict;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(rank, batch, dict);
  }
};

// [exchange]
/// Sends this rank's parameters to all others, and goes on with the mean of all.
void exchange(const RankContext& context, Net& own, std::int64_t batch, std::vector<Queue<Sent>>& inboxes,
              std::vector<Sent>& early) {
  const torch::NoGradGuard no_grad;
  Sent mine{context.rank(), batch, {}};
  for (const auto& entry : retinue::state_dict(*own)) mine.dict.insert(entry.key(), entry.value().clone());
  for (int rank = 0; rank < context.world_size(); ++rank)
    if (rank != context.rank()) inboxes[static_cast<std::size_t>(rank)].put(mine);  // A handle, the same for all.
  std::vector<Sent> others = std::exchange(early, {});
  while (std::count_if(others.begin(), others.end(), [&](const Sent& sent) { return sent.batch == batch; }) <
         context.world_size() - 1)
    others.push_back(inboxes[static_cast<std::size_t>(context.rank())].get());
  StateDict mean;
  for (const auto& entry : mine.dict) {
    Tensor sum = entry.value().clone();
    for (const Sent& sent : others)
      if (sent.batch == batch) sum += sent.dict[entry.key()];
    mean.insert(entry.key(), sum / context.world_size());
  }
  retinue::load_state_dict(*own, mean);
  for (Sent& sent : others)
    if (sent.batch != batch) early.push_back(std::move(sent));  // Of a rank that is a round ahead.
}
// [/exchange]

void train_in_rounds(RankContext& context, Shared shared, std::vector<Queue<Sent>> inboxes, const Flags& flags) {
  Net own;
  retinue::load_state_dict(*own, retinue::state_dict(*shared.net));
  std::vector<Sent> early;
  std::int64_t last = 0;
  train(context, shared, own, flags, [&](std::int64_t batch) {
    last = batch;
    if (batch % flags.sync == 0) exchange(context, own, batch, inboxes, early);
  });
  exchange(context, own, last + 1, inboxes, early);
  if (context.rank() == 0) retinue::load_state_dict(*shared.net, retinue::state_dict(*own));
}

/// The mean over the ranks, by point.
std::vector<double> curve_of(retinue::ProcessContext& ranks, Queue<LossPoint> losses, const Flags& flags) {
  std::map<int, double> sums;
  for (int left = flags.nprocs * kPoints; left > 0;) {
    const auto point = losses.get(std::chrono::milliseconds(200));
    if (point) {
      sums[point->point] += point->loss / flags.nprocs;
      --left;
    } else if (ranks.join(std::chrono::milliseconds(0)) && losses.empty()) {
      break;
    }
  }
  ranks.join();
  std::vector<double> curve;
  for (const auto& [point, loss] : sums) curve.push_back(loss);
  return curve;
}

struct Trained {
  std::vector<double> curve;
  double accuracy;
};

double accuracy_of(Net& net, const ImageBatches& images) {
  const auto [data, target] = images.part(0, 1);
  net->eval();
  return static_cast<double>(fashion_mnist::count_right(net, data, target)) / static_cast<double>(data.size(0));
}

Trained run(const ImageBatches& training, const ImageBatches& test, const Flags& flags, bool in_rounds) {
  torch::manual_seed(0);
  // [share]
  Shared shared{.pixels = training.pixels(),
                .labels = training.labels(),
                .net = Net(),
                .losses = Queue<LossPoint>({.capacity = 1000})};
  retinue::share_memory_(*shared.net);
  // [/share]
  std::vector<Queue<Sent>> inboxes;
  for (int rank = 0; rank < flags.nprocs; ++rank)
    inboxes.emplace_back(retinue::QueueOptions{.capacity = 2 * static_cast<std::size_t>(flags.nprocs)});
  const retinue::SpawnOptions options{.nprocs = flags.nprocs, .join = false};
  retinue::ProcessContext ranks = in_rounds ? retinue::spawn<train_in_rounds>(options, shared, inboxes, flags)
                                            : retinue::spawn<train_together>(options, shared, flags);
  std::vector<double> curve = curve_of(ranks, shared.losses, flags);
  Net net = shared.net;
  return {std::move(curve), accuracy_of(net, test)};
}

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("--nprocs", flags.nprocs, "Ranks")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--epochs", flags.epochs, "Passes over the images")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--batch-size", flags.batch_size, "Images per step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--sync", flags.sync, "Also train one model per rank, and exchange them every K batches")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--lr", flags.lr, "Learning rate at the start")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--min-accuracy", flags.min_accuracy, "Test accuracy below which the run has failed")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--data", flags.data, "Folder of the gzipped IDX files (else RETINUE_DATA, else Debian's)");
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  CLI::App app("Trains one model in shared memory with several ranks, without locks.");
  Flags flags;
  add_flags(app, flags);
  CLI11_PARSE(app, argc, argv);
  try {
    const fashion_mnist::Dataset dataset = fashion_mnist::read_dataset(fashion_mnist::data_folder(flags.data));
    const ImageBatches training(dataset.training);
    const ImageBatches test(dataset.test);
    const Trained hogwild = run(training, test, flags, false);
    const Trained rounds = flags.sync > 0 ? run(training, test, flags, true) : Trained{};
    std::printf("loss      hogwild%s\n", flags.sync > 0 ? "  in rounds" : "");
    for (std::size_t point = 0; point < hogwild.curve.size(); ++point) {
      std::printf("%3zu %%      %.4f", (point + 1) * 100 / kPoints, hogwild.curve[point]);
      if (point < rounds.curve.size()) std::printf("     %.4f", rounds.curve[point]);
      std::printf("\n");
    }
    if (flags.sync > 0) std::printf("hogwild: in rounds of %d batches: accuracy=%.4f\n", flags.sync, rounds.accuracy);
    const bool is_good = hogwild.accuracy >= flags.min_accuracy;
    std::printf("hogwild: %s accuracy=%.4f ranks=%d\n", is_good ? "ok" : "failed", hogwild.accuracy, flags.nprocs);
    return is_good ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hogwild: failed: %s\n", error.what());
    return 1;
  }
}
