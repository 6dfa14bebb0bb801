#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/samplers/random.h>
#include <torch/data/transforms/stack.h>
#include <torch/nn/functional/padding.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>

#include "retinue/torch/data_loader.h"
#include "retinue/torch/image_transforms.h"
#include "torch_contenders.h"

namespace retinue::bench {
namespace {

constexpr std::int64_t kImageChannels = 3, kImageSide = 32, kPadding = 4;
static_assert(kImageChannels * kImageSide * kImageSide * sizeof(float) == LoaderRound::kItemBytes);

at::Tensor make_images() {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(1);
  return torch::randint(0, 256, {LoaderRound::kItems, kImageChannels, kImageSide, kImageSide}, generator, torch::kByte);
}

/// What a user of LibTorch would write.
struct Crops : torch::data::datasets::Dataset<Crops> {
  torch::data::Example<> get(std::size_t index) override {
    namespace F = torch::nn::functional;
    const auto at = static_cast<std::int64_t>(index);
    const at::Tensor place = torch::randint(0, 2 * kPadding + 1, {2});
    const std::int64_t top = place[0].item<std::int64_t>(), left = place[1].item<std::int64_t>();
    at::Tensor image = F::pad(images[at], F::PadFuncOptions({kPadding, kPadding, kPadding, kPadding}));
    image = image.slice(1, top, top + kImageSide).slice(2, left, left + kImageSide);
    if (torch::rand({}).item<float>() < 0.5f) image = image.flip(2);
    return {image.to(torch::kFloat).div_(255).sub_(mean).div_(std), targets[at]};
  }
  std::optional<std::size_t> size() const override { return LoaderRound::kItems; }

  at::Tensor images = make_images();
  at::Tensor targets = torch::arange(LoaderRound::kItems);
  at::Tensor mean = torch::tensor({0.49f, 0.48f, 0.45f}).reshape({3, 1, 1});
  at::Tensor std = torch::tensor({0.25f, 0.24f, 0.26f}).reshape({3, 1, 1});
};

/// What all threads of a process have spent, by the scheduler's account.
std::int64_t cpu_ns_of(int pid) {
  std::int64_t sum = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::int64_t ns = 0;
    std::ifstream(task.path() / "schedstat") >> ns;
    sum += ns;
  }
  return sum;
}

template <class Loader>
void measure_epochs(const LoaderRound& round, const RankContext& context, Loader& loader,
                    const std::vector<int>& workers) {
  std::vector<int> pids = workers;
  pids.push_back(getpid());
  const auto cpu_ns = [&] {
    std::int64_t sum = 0;
    for (const int pid : pids) sum += cpu_ns_of(pid);
    return sum;
  };
  std::int64_t begin = 0, sum = 0;
  measure_iterations(
      round, context,
      [&](int i) {
        sum = 0;
        if (i == 0) begin = cpu_ns();
      },
      [&] {
        for (auto& batch : loader) sum += batch.target.sum().template item<std::int64_t>();
      },
      [&](int) {
        if (sum != std::int64_t{LoaderRound::kItems} * (LoaderRound::kItems - 1) / 2)
          throw std::runtime_error("loader: a pass had other items");
      });
  round.usage(context)->cpu_ns = cpu_ns() - begin;
}

void loader_rank(RankContext& context, const LoaderRound& round) {
  torch::set_num_threads(1);
  const auto workers = static_cast<std::size_t>(round.workers);
  if (round.way == LoaderRound::Way::kLibTorch) {
    const auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
        Crops().map(torch::data::transforms::Stack<>()),
        torch::data::DataLoaderOptions().batch_size(LoaderRound::kBatch).workers(workers));
    measure_epochs(round, context, *loader, {});
    return;
  }
  const bool forks = round.way == LoaderRound::Way::kProcesses;
  const ImageDataset dataset(make_images(), torch::arange(LoaderRound::kItems),
                             {.padding = kPadding,
                              .random_crop = ImageSize{kImageSide, kImageSide},
                              .horizontal_flip = 0.5,
                              .mean = {0.49f, 0.48f, 0.45f},
                              .std = {0.25f, 0.24f, 0.26f}});
  const auto loader = make_data_loader(dataset, {.batch_size = LoaderRound::kBatch,
                                                 .workers = workers,
                                                 .kind = forks ? WorkerKind::kProcesses : WorkerKind::kThreads});
  measure_epochs(round, context, *loader, loader->worker_pids());
}

}  // namespace

Spans loader_spans(const LoaderRound& round, std::vector<Usage>* usage) {
  return measure_round<loader_rank>(1, round, usage);
}

}  // namespace retinue::bench
