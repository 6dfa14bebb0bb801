#pragma once

#include <ATen/core/Tensor.h>
#include <torch/data/datasets/base.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "retinue/torch/item_layout.h"

namespace retinue {

struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;

  bool operator==(const ImageSize&) const = default;
};

/// What is done with the pixels of an image, in this order, with the results of torchvision's transforms of these
/// names: padding and RandomCrop or CenterCrop, RandomHorizontalFlip, ToTensor, Normalize.
struct ImageTransforms {
  std::int64_t padding = 0;  ///< Rows and columns of zeros on each side, before the random crop.
  std::optional<ImageSize> random_crop = std::nullopt;
  std::optional<ImageSize> center_crop = std::nullopt;
  double horizontal_flip = 0;    ///< The probability of a flip.
  std::vector<float> mean = {};  ///< One for each channel, or one for all. Empty: 0.
  std::vector<float> std = {};   ///< As `mean`. Empty: 1.
};

/// Pixels in memory: of channels one after the other, or of each pixel together.
struct PixelView {
  const std::uint8_t* pixels = nullptr;
  std::int64_t channels = 0;
  ImageSize size = {};
  std::int64_t channel_step = 0;  ///< From one channel to the next, in bytes; row_step and pixel_step likewise.
  std::int64_t row_step = 0;
  std::int64_t pixel_step = 0;
};

/// Applies ImageTransforms to images: bytes to floats, in one pass over the pixels of the result.
///
/// Threads: any number. Errors: UsageError for options that contradict each other, or don't fit an image.
class ImageTransform {
 public:
  ImageTransform(ImageTransforms options, std::int64_t channels);

  /// Returns the size of the result for an image of this size. Errors: UsageError if a crop is larger than the image.
  ImageSize size_of_result(ImageSize image) const;
  /// Writes the result, [channels, height, width].
  void apply(const PixelView& image, ItemGenerator& generator, float* result) const;

  std::int64_t channels() const { return static_cast<std::int64_t>(values_.size()); }

 private:
  ImageTransforms options_;
  std::vector<std::array<float, 256>> values_;  ///< What each byte becomes, by channel.
};

/// A data set of images in memory, with transforms that write into the batch.
///
/// Shape: images [items, height, width] or [items, channels, height, width], uint8; targets [items, ...]. Items: data
/// [channels, height, width], float; target [...].
/// Errors: UsageError for other shapes or types, different numbers of items, or transforms that don't fit.
class ImageDataset : public torch::data::datasets::Dataset<ImageDataset> {
 public:
  ImageDataset(const at::Tensor& images, const at::Tensor& targets, const ImageTransforms& transforms = {});

  /// Draws its random numbers from LibTorch's generator. A DataLoader calls write_item().
  torch::data::Example<> get(std::size_t index) override;
  std::optional<std::size_t> size() const override { return static_cast<std::size_t>(images_.size(0)); }

  ItemLayout item_layout() const { return layout_; }
  void write_item(std::size_t index, ItemGenerator& generator, const ItemMemory& memory) const;

 private:
  at::Tensor images_;
  at::Tensor targets_;
  ImageTransform transform_;
  ItemLayout layout_;
};

/// Makes a generator of one number of LibTorch's generator.
ItemGenerator draw_item_generator();

}  // namespace retinue
