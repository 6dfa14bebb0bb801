#pragma once

#include <torch/data.h>
#include <torch/nn.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "retinue/datasets/idx.h"

namespace fashion_mnist {

constexpr int kSide = 28;
constexpr int kClasses = 10;

struct Dataset {
  retinue::LabelledImages training;
  retinue::LabelledImages test;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(training, test);
  }
};

/// The folder to read: `requested`, else the environment variable RETINUE_DATA, else where Debian's package
/// dataset-fashion-mnist puts its files.
std::filesystem::path data_folder(const std::string& requested);

/// Reads the four IDX files of a folder. Errors: retinue::DataError.
Dataset read_dataset(const std::filesystem::path& folder);

/// Two convolutions and two layers over them: 215,000 parameters.
struct NetImpl : torch::nn::Module {
  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 16, 3).padding(1)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(16, 32, 3).padding(1)};
  torch::nn::Linear hidden{32 * 7 * 7, 128};
  torch::nn::Linear output{128, kClasses};

  NetImpl();
  torch::Tensor forward(torch::Tensor x);
};
TORCH_MODULE(Net);

/// Mean 0 and deviation 1 over the training images.
torch::Tensor normalised(const torch::Tensor& pixels);

/// Takes whole batches out of the images at once, instead of stacking single ones.
class ImageBatches : public torch::data::datasets::BatchDataset<ImageBatches, torch::data::Example<>> {
 public:
  explicit ImageBatches(const retinue::LabelledImages& images);

  torch::data::Example<> get_batch(c10::ArrayRef<std::size_t> indices) override;
  std::optional<std::size_t> size() const override { return static_cast<std::size_t>(labels_.size(0)); }

  /// Every `step`-th image from `first` on.
  torch::data::Example<> part(int first, int step) const;

  /// Shape: (count, 1, 28, 28), uint8.
  const torch::Tensor& pixels() const { return pixels_; }
  /// Shape: (count), int64.
  const torch::Tensor& labels() const { return labels_; }

 private:
  torch::Tensor pixels_;
  torch::Tensor labels_;
};

/// How many of these images a network names right, which is in evaluation mode.
std::int64_t count_right(const std::function<torch::Tensor(torch::Tensor)>& net, const torch::Tensor& data,
                         const torch::Tensor& target);

}  // namespace fashion_mnist
