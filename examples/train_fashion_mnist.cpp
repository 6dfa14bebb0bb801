/// Trains a small convolutional network on Fashion-MNIST with several ranks, in step through shared memory.
///
/// Runs the same way by itself (which starts the ranks), by `retinue run -n 2 train_fashion_mnist`, and with
/// --nprocs 1. Exit code 0: trained as well as asked for, with the same parameters on all ranks. 1: anything else.
#include <torch/data.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/serialize.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "fashion_mnist_model.h"
#include "retinue/launch/spawn.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/distributed_sampler.h"
#include "retinue/torch/process_group.h"

using fashion_mnist::ImageBatches;
using fashion_mnist::Net;
using retinue::ProcessGroup;
using retinue::RankContext;

namespace {

struct Flags {
  int nprocs = 2;
  int epochs = 4;
  int batch_size = 64;
  double lr = 0.05;
  std::string data;
  std::int64_t seed = 0;
  std::string checkpoint = "fashion_mnist.pt";
  double min_accuracy = 0.88;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(nprocs, epochs, batch_size, lr, data, seed, checkpoint, min_accuracy);
  }
};

/// The job ran to its end, but its result is not what was asked for.
class Failed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Shows one rank's view of the training as one line that is rewritten on a terminal, and as few lines elsewhere.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  Progress(int epochs, std::size_t batches_per_epoch)
      : epochs_(epochs), batches_(batches_per_epoch), on_terminal_(isatty(STDOUT_FILENO) == 1) {}

  /// `images` were trained on by all ranks up to now, in `batch` batches of epoch `epoch`.
  void show(int epoch, std::size_t batch, double loss, std::int64_t images) {
    const auto now = Clock::now();
    const bool last = batch == batches_;
    if (!last && now - shown_ < (on_terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(5000)))
      return;
    shown_ = now;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double done =
        (static_cast<double>(epoch) + static_cast<double>(batch) / static_cast<double>(batches_)) / epochs_;
    std::printf("%sepoch %d/%d  %3.0f%%  loss %.4f  %6.0f images/s  %3.0f s left%s", on_terminal_ ? "\r" : "",
                epoch + 1, epochs_, 100.0 * static_cast<double>(batch) / static_cast<double>(batches_), loss,
                static_cast<double>(images) / seconds, seconds / done - seconds, on_terminal_ && !last ? "" : "\n");
    std::fflush(stdout);
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  int epochs_;
  std::size_t batches_;
  bool on_terminal_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point shown_ = start_;
};

/// Trains and returns the images that all ranks saw per second.
double train_epochs(retinue::DistributedDataParallel<Net>& model, const RankContext& context, const ProcessGroup& group,
                    ImageBatches images, const Flags& flags) {
  // [loader]
  retinue::DistributedSampler sampler(*images.size(), group, {.seed = flags.seed});
  auto loader = torch::data::make_data_loader(std::move(images), sampler,
                                              torch::data::DataLoaderOptions().batch_size(flags.batch_size));
  // [/loader]
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(flags.lr).momentum(0.9));
  const std::size_t batches = (sampler.size() + flags.batch_size - 1) / flags.batch_size;
  const double steps = static_cast<double>(batches) * flags.epochs;
  Progress progress(flags.epochs, batches);
  std::int64_t images_seen = 0;
  for (int epoch = 0; epoch < flags.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    std::size_t batch = 0;
    double loss_sum = 0;
    for (const auto& [data, target] : *loader) {
      const double lr = flags.lr * (1.0 - static_cast<double>(epoch * batches + batch) / steps);
      optimizer.param_groups().front().options().set_lr(lr);
      // [step]
      optimizer.zero_grad();
      const torch::Tensor loss = torch::nn::functional::cross_entropy(model.forward(data), target);
      loss.backward();
      optimizer.step();
      // [/step]
      loss_sum += loss.item<double>();
      images_seen += data.size(0) * context.world_size();
      ++batch;
      if (context.rank() == 0) progress.show(epoch, batch, loss_sum / static_cast<double>(batch), images_seen);
    }
  }
  return static_cast<double>(images_seen) / progress.seconds();
}

// [accuracy]
/// The share of test images that the model names right; each rank looks at its part, and all get the sum.
double test_accuracy(Net& net, const RankContext& context, const ProcessGroup& group, const ImageBatches& images) {
  const auto [data, target] = images.part(context.rank(), context.world_size());
  net->eval();
  torch::Tensor right_and_all = torch::tensor({fashion_mnist::count_right(net, data, target), data.size(0)});
  retinue::all_reduce(right_and_all, group);
  return right_and_all[0].item<double>() / right_and_all[1].item<double>();
}
// [/accuracy]

/// Whether all ranks hold the same bits: then the smallest and the largest of each parameter over the ranks are one.
bool params_equal(const Net& net, const ProcessGroup& group) {
  for (const torch::Tensor& parameter : net->parameters()) {
    torch::Tensor smallest = parameter.detach().contiguous().view(torch::kInt32).clone();
    torch::Tensor largest = smallest.clone();
    retinue::all_reduce(smallest, group, {.op = c10d::ReduceOp::MIN});
    retinue::all_reduce(largest, group, {.op = c10d::ReduceOp::MAX});
    if (!smallest.equal(largest)) return false;
  }
  return true;
}

/// Writes beside the old checkpoint first, so that there is a whole one at any time.
void save_checkpoint(const Net& net, const std::filesystem::path& path) {
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  std::filesystem::path unfinished = path;
  unfinished += ".part";
  torch::save(net, unfinished.string());
  std::filesystem::rename(unfinished, path);
}

std::string rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", value);
  return text;
}

void train(RankContext& context, const Flags& flags) {
  // [group]
  if (std::getenv("OMP_NUM_THREADS") == nullptr) torch::set_num_threads(context.cpus_per_rank());
  torch::manual_seed(flags.seed);
  const ProcessGroup group = retinue::init_process_group(context);
  // [/group]
  const fashion_mnist::Dataset dataset = fashion_mnist::read_dataset(fashion_mnist::data_folder(flags.data));

  // [model]
  Net net;
  retinue::DistributedDataParallel<Net> model(net, group);
  // [/model]
  const double images_per_s = train_epochs(model, context, group, ImageBatches(dataset.training), flags);
  const double accuracy = test_accuracy(net, context, group, ImageBatches(dataset.test));
  const bool equal = params_equal(net, group);

  if (!equal) throw Failed("the ranks' parameters differ");
  if (accuracy < flags.min_accuracy)
    throw Failed("test accuracy " + rounded(accuracy) + " is below " + rounded(flags.min_accuracy));
  if (context.rank() != 0) return;
  save_checkpoint(net, flags.checkpoint);
  std::printf("demo: ok accuracy=%s ranks=%d images_per_s=%.0f params_equal=yes\n", rounded(accuracy).c_str(),
              context.world_size(), images_per_s);
}

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("--nprocs", flags.nprocs, "Ranks to start; 1 trains in this process")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--epochs", flags.epochs, "Passes over the training images")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch-size", flags.batch_size, "Images per step and rank")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--lr", flags.lr, "Learning rate of the first step; it falls to 0 linearly")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--data", flags.data, "Folder of the gzipped IDX files (else RETINUE_DATA, else Debian's)");
  app.add_option("--seed", flags.seed, "Seed of parameters and order")->capture_default_str();
  app.add_option("--checkpoint", flags.checkpoint, "File for the trained parameters")->capture_default_str();
  app.add_option("--min-accuracy", flags.min_accuracy, "Test accuracy below which the run has failed")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  CLI::App app("Trains a convolutional network on Fashion-MNIST with data-parallel ranks.");
  Flags flags;
  add_flags(app, flags);
  CLI11_PARSE(app, argc, argv);
  try {
    // [start]
    if (runtime.is_rank() || flags.nprocs == 1) {
      RankContext context = runtime.rank_context();
      train(context, flags);
    } else {
      // Read here too, so that bad data is one error of this program, not one of each rank.
      fashion_mnist::read_dataset(fashion_mnist::data_folder(flags.data));
      retinue::spawn<train>({.nprocs = flags.nprocs}, flags);
    }
    // [/start]
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "demo: failed: %s\n", error.what());
    return 1;
  }
}
