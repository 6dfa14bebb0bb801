/// Trains a small classifier on pictures of bright corners, which a data loader reads, crops and flips. Argument: a
/// folder for checkpoints and pictures.
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "retinue/datasets/csv.h"
#include "retinue/datasets/idx.h"
#include "retinue/datasets/image_folder.h"
#include "retinue/datasets/npy.h"
#include "retinue/launch/spawn.h"
#include "retinue/torch/checkpoint.h"
#include "retinue/torch/data_loader.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/distributed_sampler.h"
#include "retinue/torch/image_transforms.h"
#include "retinue/torch/load_once.h"
#include "retinue/torch/tensor_dataset.h"

namespace {

namespace nn = torch::nn;
namespace fs = std::filesystem;

constexpr std::int64_t kPictures = 600;

/// Dim noise with one bright half, above or below.
retinue::LabelledImages make_pictures() {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(1);
  const at::Tensor labels = torch::arange(kPictures).remainder(2);
  const at::Tensor images = torch::randint(0, 100, {kPictures, 1, 16, 16}, generator, torch::kByte);
  for (std::int64_t i = 0; i < kPictures; ++i) images[i][0].narrow(0, 8 * (i % 2), 8).add_(100);
  return {images, labels};
}

// [dataset]
/// A data set of your own: pictures with noise.
struct NoisyPictures : torch::data::datasets::Dataset<NoisyPictures> {
  torch::data::Example<> get(std::size_t index, retinue::ItemGenerator& random) {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(random());
    const at::Tensor noise = torch::randn({16, 16}, generator);
    return {noise + static_cast<double>(index % 2), torch::tensor(static_cast<std::int64_t>(index % 2))};
  }
  torch::data::Example<> get(std::size_t index) override {
    retinue::ItemGenerator random(torch::randint(1 << 30, {}).item<std::int64_t>());
    return get(index, random);
  }
  std::optional<std::size_t> size() const override { return 100; }
};
// [/dataset]

double mean_of(const retinue::DataLoaderOptions& options) {
  double sum = 0;
  // [loop]
  const auto loader = retinue::make_data_loader<torch::data::samplers::SequentialSampler>(NoisyPictures(), options);
  for (auto& batch : *loader) sum += batch.data.sum().item<double>();
  // [/loop]
  return sum;
}

/// The same numbers, whatever loads them.
void compare_workers() {
  // [options]
  const double alone = mean_of({.batch_size = 16});
  const double threads = mean_of({.batch_size = 16, .workers = 2});
  const double processes = mean_of({.batch_size = 16, .workers = 3, .kind = retinue::WorkerKind::kProcesses});
  // [/options]
  std::printf("equal batches: %s\n", alone == threads && alone == processes ? "yes" : "no");
}

// [train]
void train(retinue::RankContext& context, const std::string& folder, int epochs) {
  torch::set_num_threads(1);
  torch::manual_seed(1);
  const retinue::ProcessGroup group = retinue::init_process_group(context);
  // One rank of each host makes, or reads, the pictures; the others map the same memory.
  const auto pictures = retinue::load_once_per_host(group, make_pictures);
  const retinue::ImageDataset dataset(
      pictures.images, pictures.labels,
      {.padding = 1, .random_crop = retinue::ImageSize{16, 16}, .horizontal_flip = 0.5, .mean = {0.4}, .std = {0.2}});
  retinue::DistributedSampler sampler(kPictures, group);
  const auto loader = retinue::make_data_loader(dataset, sampler, {.batch_size = 20, .workers = 2, .seed = 7});

  nn::Sequential net(nn::Flatten(), nn::Linear(256, 2));
  retinue::DistributedDataParallel model(net, group);
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.001));
  retinue::Checkpoint checkpoint(folder, group, {.keep = 1});
  retinue::CheckpointState state{.model = model, .optimizer = optimizer, .sampler = sampler};
  std::int64_t step = checkpoint.load_newest(state).value_or(0);
  if (context.rank() == 0) std::printf("begins after step %ld\n", step);

  double loss = 0;
  for (std::int64_t epoch = sampler.epoch(); epoch < epochs; ++epoch) {
    sampler.set_epoch(epoch);
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      const at::Tensor error = nn::functional::cross_entropy(model(batch.data), batch.target);
      error.backward();
      optimizer.step();
      loss = error.item<double>();
      state.consumed = loader->consumed();
      if (++step % 10 == 0) checkpoint.save(step, state);
    }
  }
  if (context.rank() == 0) std::printf("step %ld, loss %.9f\n", step, loss);
}
// [/train]

/// Reads what is in `folder`, if it is there.
void read_files(const fs::path& folder) {
  if (fs::exists(folder / "train-images-idx3-ubyte.gz")) {
    // [idx]
    const retinue::LabelledImages training = retinue::read_mnist(folder, /*train=*/true);
    const retinue::ImageDataset dataset(training.images, training.labels, {.mean = {0.1307}, .std = {0.3081}});
    // [/idx]
    std::printf("%zu images\n", *dataset.size());
  }
  if (fs::exists(folder / "x.npy") && fs::exists(folder / "y.npy")) {
    // [npy]
    const retinue::TensorDataset dataset(retinue::read_npy(folder / "x.npy"), retinue::read_npy(folder / "y.npy"));
    // [/npy]
    std::printf("%zu rows\n", *dataset.size());
  }
  if (fs::exists(folder / "houses.csv")) {
    // [csv]
    const retinue::CsvTable table = retinue::read_csv(folder / "houses.csv");
    const at::Tensor features = torch::stack({table.column("rooms"), table.column("area")}, 1);
    const retinue::TensorDataset dataset(features, table.column("price"));
    // [/csv]
    std::printf("%zu houses\n", *dataset.size());
  }
  if (fs::exists(folder / "photos")) {
    // [folder]
    const retinue::ImageFolder dataset(folder / "photos", {.resize_shorter_side = 256,
                                                           .transforms = {.random_crop = retinue::ImageSize{224, 224},
                                                                          .horizontal_flip = 0.5,
                                                                          .mean = {0.485, 0.456, 0.406},
                                                                          .std = {0.229, 0.224, 0.225}}});
    for (const std::string& name : dataset.classes()) std::printf("class %s\n", name.c_str());
    // [/folder]
  }
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  const std::string folder = argc > 1 ? argv[1] : "checkpoints";
  const int epochs = argc > 2 ? std::atoi(argv[2]) : 2;
  try {
    compare_workers();
    read_files(folder);
    retinue::spawn<train>({.nprocs = 2}, folder + "/checkpoints", epochs);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
