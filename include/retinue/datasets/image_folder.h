#pragma once

#include <ATen/core/Tensor.h>
#include <torch/data/datasets/base.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "retinue/datasets/data_error.h"
#include "retinue/torch/image_transforms.h"

namespace retinue {

/// Reads a JPEG or PNG file, whatever its name: [channels, height, width], uint8. `channels`: 3 for RGB, 1 for grey.
/// Pixels are converted as Pillow's convert("RGB") and convert("L") do: an alpha channel is dropped. A JPEG has its own
/// grey channel. Of 16 bits, the upper 8 count, also for a grey PNG, which Pillow would clip.
/// Errors: DataError, also for a JPEG of colour model CMYK and an image of more than 2^28 pixels.
at::Tensor read_image(const std::filesystem::path& file, std::int64_t channels = 3);

struct ImageFolderOptions {
  std::int64_t channels = 3;                       ///< As in read_image().
  std::optional<ImageSize> resize = std::nullopt;  ///< Before `transforms`: torchvision's Resize, bilinear.
  std::optional<std::int64_t> resize_shorter_side = std::nullopt;  ///< The same, with the image's proportions.
  ImageTransforms transforms = {};
};

/// A data set of images in one folder for each class, as torchvision's ImageFolder: root/class/image.jpg, also in
/// folders below.
///
/// Classes are the names of the folders, sorted; a target is the number of the class, int64. Files are *.jpg, *.jpeg
/// and
/// *.png, sorted, and read when they are needed. Without a resize or a crop, images must all have the first one's size.
/// Threads: as ImageDataset; copies share the list of files.
/// Errors: DataError for a folder without classes, a class without images, images of types that can't be read (bmp,
/// gif, ppm, tiff, webp), and from items; UsageError for options that contradict each other.
class ImageFolder : public torch::data::datasets::Dataset<ImageFolder> {
 public:
  struct Sample {
    std::filesystem::path file;
    std::int64_t target;
  };

  explicit ImageFolder(const std::filesystem::path& root, const ImageFolderOptions& options = {});

  /// Draws its random numbers from LibTorch's generator. A DataLoader calls write_item().
  torch::data::Example<> get(std::size_t index) override;
  std::optional<std::size_t> size() const override { return listing_->samples.size(); }

  ItemLayout item_layout() const { return layout_; }
  void write_item(std::size_t index, ItemGenerator& generator, const ItemMemory& memory) const;

  const std::vector<std::string>& classes() const { return listing_->classes; }
  const std::vector<Sample>& samples() const { return listing_->samples; }

 private:
  struct Listing {
    std::vector<std::string> classes;
    std::vector<Sample> samples;
  };
  static Listing list(const std::filesystem::path& root);
  void write_pixels(const Sample& sample, ItemGenerator& generator, float* result) const;

  std::shared_ptr<const Listing> listing_;
  ImageFolderOptions options_;
  ImageTransform transform_;
  ItemLayout layout_;
};

}  // namespace retinue
