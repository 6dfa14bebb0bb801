/// Trains a small transformer to continue text, character by character, on files of a Debian package: the licences in
/// /usr/share/common-licenses.
///
/// Each rank trains on files of its own, so ranks have different numbers of batches: retinue::join.
/// Exit code 0: learned as well as asked for. 1: anything else.
#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cereal/types/string.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <stdexcept>
#include <string>
#include <vector>

#include "retinue/launch/spawn.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/join.h"
#include "retinue/torch/process_group.h"

namespace nn = torch::nn;
using torch::Tensor;

namespace {

constexpr std::int64_t kCharacters = 128;  ///< ASCII.
constexpr std::int64_t kContext = 64;      ///< Characters that the model sees.
constexpr std::int64_t kBatch = 16;        ///< Pieces of text in a batch.

struct CharacterModelImpl : nn::Module {
  explicit CharacterModelImpl(std::int64_t width = 128) {
    const auto layer = nn::TransformerEncoderLayerOptions(width, 4).dim_feedforward(4 * width).dropout(0.0);
    characters = register_module("characters", nn::Embedding(kCharacters, width));
    places = register_module("places", nn::Embedding(kContext, width));
    layers = register_module("layers", nn::TransformerEncoder(nn::TransformerEncoderLayer(layer), 2));
    output = register_module("output", nn::Linear(width, kCharacters));
  }

  /// Shapes: text (batch, length), int64; result (batch, length, kCharacters), of the characters that follow each.
  Tensor forward(const Tensor& text) {
    const std::int64_t length = text.size(1);
    const Tensor later = torch::full({length, length}, -INFINITY).triu(1);  // Nobody sees what follows.
    const Tensor x = characters(text) + places(torch::arange(length));
    return output(layers(x.transpose(0, 1), later)).transpose(0, 1);
  }

  nn::Embedding characters{nullptr}, places{nullptr};
  nn::TransformerEncoder layers{nullptr};
  nn::Linear output{nullptr};
};
TORCH_MODULE(CharacterModel);

using Model = retinue::DistributedDataParallel<CharacterModel>;

struct Flags {
  int nprocs = 2;
  int epochs = 12;
  double lr = 0.002;
  std::string text = "/usr/share/common-licenses";
  double max_bits = 3.0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(nprocs, epochs, lr, text, max_bits);
  }
};

/// The regular files of a folder, in order.
std::vector<std::filesystem::path> files_of(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// The file's characters, other than ASCII left out. Shape: (length), int64.
Tensor read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  std::vector<std::int64_t> text;
  for (char character; file.get(character);)
    if (static_cast<unsigned char>(character) < kCharacters) text.push_back(character);
  return torch::tensor(text, torch::kInt64);
}

/// Pieces of kContext + 1 characters. Shape: (count, kContext + 1).
struct Texts {
  Tensor training;
  Tensor test;
};

/// Every `size`-th file from the `rank`-th on; the last tenth of each is for the test.
Texts read_texts(const std::string& folder, int rank, int size) {
  const auto files = files_of(folder);
  std::vector<Tensor> training, test;
  for (std::size_t i = rank; i < files.size(); i += size) {
    const Tensor text = read_text(files[i]);
    if (text.size(0) < 20 * (kContext + 1)) continue;
    const Tensor pieces = text.unfold(0, kContext + 1, kContext);
    const std::int64_t count = pieces.size(0) * 9 / 10;
    training.push_back(pieces.slice(0, 0, count));
    test.push_back(pieces.slice(0, count));
  }
  if (training.empty())
    throw std::runtime_error(fmt::format("{} has no file for rank {} of {}, of at least {} characters", folder, rank,
                                         size, 20 * (kContext + 1)));
  return {torch::cat(training), torch::cat(test)};
}

/// The mean loss of each character that follows, in nats.
template <class Net>
Tensor loss_of(Net& net, const Tensor& pieces) {
  const Tensor guess = net.forward(pieces.slice(1, 0, kContext));
  return nn::functional::cross_entropy(guess.reshape({-1, kCharacters}), pieces.slice(1, 1).reshape({-1}));
}

/// Bits that the model needs for a character of all ranks' test texts.
double test_bits(Model& model, const Tensor& pieces) {
  const torch::NoGradGuard no_grad;
  model->eval();
  Tensor sum_and_count = torch::zeros({2}, torch::kFloat64);
  for (const Tensor& batch : pieces.split(8 * kBatch)) {
    sum_and_count[0] += loss_of(model.module(), batch).item<double>() * batch.size(0);
    sum_and_count[1] += batch.size(0);
  }
  model->train();
  retinue::all_reduce(sum_and_count, model.group());
  return (sum_and_count[0] / sum_and_count[1]).item<double>() / std::numbers::ln2;
}

/// Lets the model continue `text` by `count` characters.
std::string continued(CharacterModelImpl& net, std::string text, int count) {
  const torch::NoGradGuard no_grad;
  net.eval();
  for (int i = 0; i < count; ++i) {
    const std::string seen = text.size() > kContext ? text.substr(text.size() - kContext) : text;
    const Tensor input = torch::tensor(std::vector<std::int64_t>(seen.begin(), seen.end())).unsqueeze(0);
    const Tensor chances = (net.forward(input)[0][-1] / 0.5).softmax(0);
    text.push_back(static_cast<char>(chances.multinomial(1).item<std::int64_t>()));
  }
  return text;
}

void train(retinue::RankContext& context, const Flags& flags) {
  torch::set_num_threads(context.cpus_per_rank());
  torch::manual_seed(context.rank());
  const retinue::ProcessGroup group = retinue::init_process_group(context);
  const Texts texts = read_texts(flags.text, context.rank(), context.world_size());
  Model model(CharacterModel(), group);
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(flags.lr));

  for (int epoch = 0; epoch < flags.epochs; ++epoch) {
    const double done = static_cast<double>(epoch) / flags.epochs;
    static_cast<torch::optim::AdamWOptions&>(optimizer.param_groups()[0].options()).lr(flags.lr * (1 - 0.9 * done));
    // [join]
    const Tensor order = torch::randperm(texts.training.size(0));
    retinue::join({.models = {&model}, .divide_by_initial_world_size = false}, [&] {
      for (const Tensor& picked : order.split(kBatch)) {  // As many batches as this rank has.
        optimizer.zero_grad();
        loss_of(model, texts.training.index_select(0, picked)).backward();
        torch::nn::utils::clip_grad_norm_(model.parameters(), 1.0);
        optimizer.step();
      }
    });
    // [/join]
    const double bits = test_bits(model, texts.test);
    if (context.rank() == 0) fmt::print("epoch {}/{}  {:.3f} bits a character\n", epoch + 1, flags.epochs, bits);
    std::fflush(stdout);
  }

  const double bits = test_bits(model, texts.test);
  if (!(bits <= flags.max_bits))
    throw std::runtime_error(fmt::format("{:.3f} bits a character are more than {:.3f}", bits, flags.max_bits));
  if (context.rank() != 0) return;
  fmt::print("{}\n", continued(model.module(), "You may copy and ", 200));
  fmt::print("character_model: ok bits={:.3f} ranks={}\n", bits, context.world_size());
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  CLI::App app("Trains a language model of characters, with ranks that have different amounts of text.");
  Flags flags;
  app.add_option("--nprocs", flags.nprocs, "Ranks to start")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--epochs", flags.epochs, "Passes over the text")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--lr", flags.lr, "Learning rate of the first epoch")->capture_default_str();
  app.add_option("--text", flags.text, "Folder of text files, of which each rank takes its part")
      ->capture_default_str();
  app.add_option("--max-bits", flags.max_bits, "Bits a character above which the run has failed")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    if (runtime.is_rank()) {
      retinue::RankContext context = runtime.rank_context();
      train(context, flags);
    } else {
      retinue::spawn<train>({.nprocs = flags.nprocs}, flags);
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "character_model: failed: {}\n", error.what());
    return 1;
  }
}
