// Tensors' corpus, and what a sender writes of each form: the job has its memory, so that marks stand for it.
#include <torch/torch.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/corpus.h"
#include "fuzz/harness.h"
#include "retinue/torch/tensor_archive.h"

namespace retinue::fuzz {
namespace {

constexpr Target kTensor[] = {{"tensor", tensor}};
INSTANTIATE_TEST_SUITE_P(Tensors, Corpus, testing::ValuesIn(kTensor), name_of_target);

/// The message with marks of the job's second block in place of its handles.
std::string with_marks(const detail::Encoded& encoded) {
  std::string text = encoded.bytes;
  for (const SharedBlock& block : encoded.references) {
    const BlockHandle handle = block.handle();
    const std::string_view own(reinterpret_cast<const char*>(&handle), sizeof handle);
    std::string mark("HNDL\1");
    mark.resize(sizeof handle);
    for (std::size_t at = text.find(own); at != std::string::npos; at = text.find(own))
      text.replace(at, sizeof handle, mark);
  }
  return text;
}

TEST(TensorTarget, TakesWhatSendersWriteAndItsNeighbours) {
  Job::instance();
  const at::Tensor base = torch::arange(24, torch::kFloat).reshape({4, 6});
  const at::Tensor leaf = base.clone().requires_grad_(true);
  leaf.mutable_grad() = base.to_sparse();
  const std::vector<at::Tensor> tensors = {
      base.t(),
      leaf,
      torch::empty({0, 3}),
      at::imag(torch::complex(base, base).conj()),
      base.to_sparse(),
      base.to_sparse_csr(),
      base.to_sparse_bsc({2, 3}),
      at::quantize_per_tensor(base, 0.5, 3, torch::kQUInt8),
      at::quantize_per_channel(base, torch::rand(4) + 0.1, torch::zeros(4, torch::kLong), 0, torch::kQInt8)};
  std::mt19937 random(1);
  for (const at::Tensor& each : tensors) {
    const std::string whole = with_marks(detail::encode_value(each));
    EXPECT_EQ(whole.find("HNDL") == std::string::npos, each.numel() == 0) << each.toString();
    for (int round = 0; round < 1000; ++round) {
      std::string bytes = whole;
      for (unsigned left = round == 0 ? 0 : 1 + random() % 3; left > 0; --left)
        bytes[random() % bytes.size()] = static_cast<char>(random() % (round % 2 == 0 ? 256 : 8));
      EXPECT_NO_THROW(tensor(std::as_bytes(std::span(bytes)))) << each.toString() << ", round " << round;
    }
  }
}

}  // namespace
}  // namespace retinue::fuzz
