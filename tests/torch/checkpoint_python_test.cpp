// Python's torch.load() reads what a Checkpoint writes.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <string>

#include "cli/shell_run.h"
#include "support/paths.h"
#include "support/ranks.h"
#include "support/says.h"
#include "torch/checkpoint/crc32.h"
#include "torch/checkpoint_scene.h"

namespace retinue {
namespace {

namespace optim = torch::optim;
using test::Folder;
using test::group_of;
using test::MakeOptimizer;
using test::maker_of;
using test::run_ranks;
using test::says;
using test::shell_run;
using test::Trained;

MakeOptimizer make_optimizer(const std::string& name) {
  if (name == "SGD")
    return maker_of<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01));
  if (name == "Adam") return maker_of<optim::Adam>(optim::AdamOptions(0.02).betas({0.7, 0.9}).weight_decay(0.1));
  if (name == "AdamW") return maker_of<optim::AdamW>(optim::AdamWOptions(0.02).amsgrad(true).weight_decay(0.1));
  if (name == "RMSprop") return maker_of<optim::RMSprop>(optim::RMSpropOptions(0.02).momentum(0.5).centered(true));
  return maker_of<optim::Adagrad>(optim::AdagradOptions(0.02).lr_decay(0.1));
}

class CheckpointInPython : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, CheckpointInPython, testing::Values("SGD", "Adam", "AdamW", "RMSprop", "Adagrad"));

std::string line_of(const std::string& name, const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().contiguous();
  const std::string type = plain.scalar_type() == torch::kBFloat16 ? "bfloat16"
                           : plain.scalar_type() == torch::kLong   ? "int64"
                                                                   : "float32";
  std::string shape;
  for (const std::int64_t size : plain.sizes()) shape += (shape.empty() ? "" : ", ") + std::to_string(size);
  return name + " " + type + " [" + shape + "] " +
         std::to_string(crc32_by_tables(plain.const_data_ptr(), plain.nbytes())) + "\n";
}

/// The same step as the script's.
void make_step(Trained& trained) {
  for (at::Tensor& parameter : trained.optimizer->param_groups().front().params())
    parameter.mutable_grad() = torch::full_like(parameter, 0.25);
  trained.optimizer->step();
}

std::string names_of_parameters(const Trained& trained) {
  std::string names;
  for (const at::Tensor& parameter : trained.optimizer->param_groups().front().params())
    for (const auto& item : trained.net->named_parameters())
      if (item.value().is_same(parameter)) {
        names += item.key() + "\n";
        break;
      }
  return names;
}

TEST_P(CheckpointInPython, IsWhatWasSaved) {
  const std::string python = RETINUE_TORCH_PYTHON;
  if (python.empty()) GTEST_SKIP() << "this LibTorch has no Python";
  // A wheel may be installed for its libraries alone, without what its Python modules need.
  if (shell_run("'" + python + "' -c 'import torch'").status != 0) GTEST_SKIP() << python << " can't import torch";
  const Folder folder;
  const auto train = [&] { return Trained(1, make_optimizer(GetParam()), 3); };
  run_ranks(2, [&](const JobGroup& members) {
    Trained trained = train();
    const ProcessGroup group = group_of(members);
    DistributedSampler sampler(10, group);
    CheckpointState state = trained.state();
    state.sampler = sampler;
    state.consumed = 3;
    Checkpoint checkpoint(folder.path(), group);
    torch::manual_seed(static_cast<std::uint64_t>(members.rank));
    checkpoint.save(1, state);
    make_step(trained);
    checkpoint.save(2, state);
  });
  // Not before the ranks, which would have to do without the threads of a fork's parent.
  const Trained trained = train();
  std::ofstream(folder.path() + "/names") << names_of_parameters(trained);
  const auto result = shell_run(
      python + " -W 'ignore:Failed to initialize NumPy' " RETINUE_SOURCE_DIR "/tests/torch/checkpoint_in_python.py " +
      folder.path() + "/step-000000001.pt " + folder.path() + "/step-000000002.pt " + GetParam() + " < " +
      folder.path() + "/names");
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_FALSE(says(result.output, "Warning")) << result.output;
  std::string expected = "step 1 of 2 ranks\n";
  for (const auto& item : trained.net->named_parameters()) expected += line_of(item.key(), item.value());
  for (const auto& item : trained.net->named_buffers()) expected += line_of(item.key(), item.value());
  EXPECT_EQ(result.output.substr(0, expected.size()), expected);
  EXPECT_TRUE(says(result.output, "sampler {'epoch': 0, 'consumed': 6}\n")) << result.output;
  for (std::uint64_t rank : {0, 1}) {
    torch::manual_seed(rank);
    char line[64];
    std::snprintf(line, sizeof line, "rank %d %.9f\n", static_cast<int>(rank), torch::rand({1}).item<float>());
    EXPECT_TRUE(says(result.output, line)) << line << result.output;
  }
  EXPECT_TRUE(says(result.output, "the same step\n")) << result.output;
}

TEST(CheckpointCrc32, IsPythonsOfAnyLength) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += static_cast<char>(i * 37 + i / 7);
  EXPECT_EQ(crc32("123456789", 9), 0xCBF43926u);  // The check value of the standard.
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const std::uint32_t whole = crc32_by_tables(bytes.data(), size);
    EXPECT_EQ(crc32(bytes.data(), size), whole) << size;
    const std::size_t cut = size / 3;
    const std::uint32_t head = crc32(bytes.data(), cut);
    const std::uint32_t tail = crc32(bytes.data() + cut, size - cut);
    EXPECT_EQ(crc32_combine(head, tail, size - cut), whole) << size;
    EXPECT_EQ(crc32(bytes.data() + cut, size - cut, head), whole) << size;
  }
}

}  // namespace
}  // namespace retinue
