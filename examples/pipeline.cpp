/// A pipeline: decoder ranks prepare batches of Fashion-MNIST, the program trains on them and gives the buffers back.
/// After the first round no batch is copied and nothing is allocated: the program proves it by where batches lie.
///
/// Exit code 0: every batch came once, in buffers that were there before. 1: anything else.
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "fashion_mnist_model.h"
// [includes]
#include "retinue/ipc/queue.h"
#include "retinue/launch/spawn.h"
#include "retinue/torch/shared_tensor.h"
#include "retinue/torch/tensor_archive.h"
// [/includes]

using fashion_mnist::ImageBatches;
using fashion_mnist::Net;
using retinue::JobMemory;
using retinue::Queue;
using retinue::RankContext;
using torch::Tensor;

namespace {

constexpr std::int64_t kBatch = 64;

/// A batch on its way round: decoders fill it, the trainer empties it.
struct Buffer {
  Tensor images;
  Tensor labels;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(images, labels);
  }
};

// [decoder]
/// Fills free buffers with batches of the images, one after the other, until there are no batches left.
void decode(RankContext& context, const Tensor& pixels, const Tensor& labels, Queue<std::int64_t> todo,
            Queue<Buffer> empty, Queue<Buffer> filled) {
  torch::set_num_threads(context.cpus_per_rank());
  try {
    for (;;) {
      const std::int64_t first = todo.get() * kBatch;
      Buffer buffer = empty.get();
      buffer.images.copy_(pixels.slice(0, first, first + kBatch)).div_(255).sub_(0.2860).div_(0.3530);
      buffer.labels.copy_(labels.slice(0, first, first + kBatch));
      filled.put(buffer);  // A handle of some bytes, whatever the batch's size.
    }
  } catch (const retinue::Closed&) {
    // All batches are done.
  }
}
// [/decoder]

struct Flags {
  int nprocs = 2;
  int buffers = 4;
  std::int64_t batches = 200;
  std::string data;
};

int run(const Flags& flags) {
  const fashion_mnist::Dataset dataset = fashion_mnist::read_dataset(fashion_mnist::data_folder(flags.data));
  const ImageBatches images(dataset.training);
  const std::int64_t in_data = images.labels().size(0) / kBatch;

  // [buffers]
  Queue<std::int64_t> todo({.capacity = static_cast<std::size_t>(flags.batches)});
  Queue<Buffer> empty({.capacity = static_cast<std::size_t>(flags.buffers)});
  Queue<Buffer> filled({.capacity = static_cast<std::size_t>(flags.buffers)});
  std::set<const void*> places;
  for (int i = 0; i < flags.buffers; ++i) {
    const Buffer buffer{retinue::shared_empty({kBatch, 1, 28, 28}), retinue::shared_empty({kBatch}, torch::kInt64)};
    places.insert(buffer.images.data_ptr());
    empty.put(buffer);
  }
  // [/buffers]
  for (std::int64_t batch = 0; batch < flags.batches; ++batch) todo.put(batch % in_data);
  todo.close();
  retinue::ProcessContext decoders = retinue::spawn<decode>({.nprocs = flags.nprocs, .join = false}, images.pixels(),
                                                            images.labels(), todo, empty, filled);

  Net net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));
  std::set<const void*> seen;
  std::int64_t allocated = 0;
  double first_loss = 0;
  double last_loss = 0;
  for (std::int64_t batch = 0; batch < flags.batches; ++batch) {
    const auto buffer = filled.get(std::chrono::seconds(60));
    if (!buffer) {
      decoders.join();  // Throws what went wrong there, if anything did.
      throw std::runtime_error("no batch came within 60 s");
    }
    seen.insert(buffer->images.data_ptr());
    optimizer.zero_grad();
    const Tensor loss = torch::nn::functional::cross_entropy(net->forward(buffer->images), buffer->labels);
    loss.backward();
    optimizer.step();
    empty.put(*buffer);
    (batch < flags.batches / 2 ? first_loss : last_loss) += loss.item<double>();
    if (batch == 2 * flags.buffers) allocated = static_cast<std::int64_t>(JobMemory::current()->allocated_bytes());
  }
  decoders.join();
  // Handles on their way take some memory, more or less of it at any moment; a batch would take much more.
  const std::int64_t grown = static_cast<std::int64_t>(JobMemory::current()->allocated_bytes()) - allocated;
  constexpr std::int64_t kOneBatch = kBatch * 28 * 28 * sizeof(float);
  const bool is_good = seen == places && grown < kOneBatch && last_loss < first_loss;
  std::printf("pipeline: %s batches=%lld buffers=%zu places=%zu grown_bytes=%lld loss %.3f -> %.3f\n",
              is_good ? "ok" : "failed", static_cast<long long>(flags.batches), places.size(), seen.size(),
              static_cast<long long>(grown), 2 * first_loss / static_cast<double>(flags.batches),
              2 * last_loss / static_cast<double>(flags.batches));
  return is_good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  CLI::App app("Trains on batches that other ranks decode, in buffers that are reused.");
  Flags flags;
  app.add_option("--nprocs", flags.nprocs, "Decoder ranks")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--buffers", flags.buffers, "Batches in flight at once")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--batches", flags.batches, "Batches of 64 images")
      ->check(CLI::Range(20, 100000))
      ->capture_default_str();
  app.add_option("--data", flags.data, "Folder of the gzipped IDX files (else RETINUE_DATA, else Debian's)");
  CLI11_PARSE(app, argc, argv);
  torch::set_num_threads(1);  // The ranks have the other cores; OpenMP's threads spin where they wait for one.
  try {
    return run(flags);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pipeline: failed: %s\n", error.what());
    return 1;
  }
}
