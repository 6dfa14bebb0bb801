#include "retinue/datasets/image_folder.h"

#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "datasets/image_file.h"

namespace retinue {
namespace {

namespace fs = std::filesystem;

std::string lower_extension(const fs::path& file) {
  std::string extension = file.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char each) { return static_cast<char>(std::tolower(each)); });
  return extension;
}

bool is_image(const fs::path& file) {
  constexpr std::array<std::string_view, 3> kRead = {".jpg", ".jpeg", ".png"};
  // torchvision reads them; to leave them out here would make another data set without a word.
  constexpr std::array<std::string_view, 8> kOther = {".bmp", ".gif", ".pbm", ".pgm", ".ppm", ".tif", ".tiff", ".webp"};
  const std::string extension = lower_extension(file);
  if (std::find(kOther.begin(), kOther.end(), extension) != kOther.end())
    throw DataError(file, "is an image of a type that can't be read; convert it to JPEG or PNG");
  return std::find(kRead.begin(), kRead.end(), extension) != kRead.end();
}

/// Sorted as torchvision does: folder by folder.
std::vector<fs::path> images_below(const fs::path& folder) {
  std::vector<fs::path> files;
  const auto options = fs::directory_options::follow_directory_symlink;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder, options))
    if (entry.is_regular_file() && is_image(entry.path())) files.push_back(entry.path());
  std::sort(files.begin(), files.end(), [](const fs::path& left, const fs::path& right) {
    return std::pair(left.parent_path().string(), left.filename().string()) <
           std::pair(right.parent_path().string(), right.filename().string());
  });
  return files;
}

void check_folder_options(const ImageFolderOptions& options) {
  if (options.channels != 1 && options.channels != 3)
    throw UsageError(c10::str("ImageFolder: images have 1 or 3 channels, not ", options.channels));
  if (options.resize && options.resize_shorter_side)
    throw UsageError("ImageFolder: resize and resize_shorter_side exclude each other");
  if ((options.resize && (options.resize->height < 1 || options.resize->width < 1)) ||
      (options.resize_shorter_side && *options.resize_shorter_side < 1))
    throw UsageError("ImageFolder: an image can't be resized to nothing");
}

ImageSize resized(const ImageFolderOptions& options, ImageSize image) {
  if (options.resize) return *options.resize;
  if (!options.resize_shorter_side) return image;
  const std::int64_t side = *options.resize_shorter_side;
  if (image.height <= image.width) return {side, side * image.width / image.height};
  return {side * image.height / image.width, side};
}

/// Makes an image of this size in `result`, planar.
at::Tensor resize_pixels(const DecodedImage& image, ImageSize size) {
  auto* const pixels = const_cast<std::uint8_t*>(image.pixels.data());  // NOLINT: from_blob takes no const.
  const at::Tensor bytes = at::from_blob(pixels, {1, image.size.height, image.size.width, image.channels}, at::kByte);
  const at::Tensor planes = bytes.permute({0, 3, 1, 2}).to(at::kFloat, false, false, at::MemoryFormat::Contiguous);
  return at::_upsample_bilinear2d_aa(planes, {size.height, size.width}, /*align_corners=*/false)
      .round_()
      .clamp_(0, 255)
      .to(at::kByte);
}

DecodedImage& scratch_image(std::int64_t channels) {
  thread_local DecodedImage image;
  image.channels = channels;
  return image;
}

}  // namespace

at::Tensor read_image(const fs::path& file, std::int64_t channels) {
  check_folder_options({.channels = channels});
  DecodedImage& image = scratch_image(channels);
  decode_file(file, Decode::kPixels, image);
  return at::from_blob(image.pixels.data(), {image.size.height, image.size.width, channels}, at::kByte)
      .permute({2, 0, 1})
      .clone(at::MemoryFormat::Contiguous);
}

ImageFolder::Listing ImageFolder::list(const fs::path& root) {
  if (!fs::is_directory(root)) throw DataError(root, "is missing, or not a folder");
  Listing listing;
  for (const fs::directory_entry& entry : fs::directory_iterator(root))
    if (entry.is_directory()) listing.classes.push_back(entry.path().filename().string());
  if (listing.classes.empty()) throw DataError(root, "has no folders, of which each would be a class");
  std::sort(listing.classes.begin(), listing.classes.end());
  for (std::size_t target = 0; target < listing.classes.size(); ++target) {
    const fs::path folder = root / listing.classes[target];
    const std::vector<fs::path> files = images_below(folder);
    if (files.empty()) throw DataError(folder, "has no images, *.jpg, *.jpeg or *.png");
    for (const fs::path& file : files) listing.samples.push_back({file, static_cast<std::int64_t>(target)});
  }
  return listing;
}

ImageFolder::ImageFolder(const fs::path& root, const ImageFolderOptions& options)
    : listing_(std::make_shared<const Listing>(list(root))),
      options_((check_folder_options(options), options)),
      transform_(options.transforms, options.channels) {
  DecodedImage& first = scratch_image(options_.channels);
  decode_file(listing_->samples.front().file, Decode::kSize, first);
  const ImageSize size = transform_.size_of_result(resized(options_, first.size));
  layout_.data = {{options_.channels, size.height, size.width}, at::kFloat};
  layout_.target = PartLayout{{}, at::kLong};
}

torch::data::Example<> ImageFolder::get(std::size_t index) {
  ItemGenerator generator = draw_item_generator();
  torch::data::Example<> item{at::empty(layout_.data.sizes, at::kFloat), at::empty({}, at::kLong)};
  write_item(
      index, generator,
      {static_cast<std::byte*>(item.data.mutable_data_ptr()), static_cast<std::byte*>(item.target.mutable_data_ptr())});
  return item;
}

void ImageFolder::write_item(std::size_t index, ItemGenerator& generator, const ItemMemory& memory) const {
  if (index >= listing_->samples.size())
    throw UsageError(c10::str("ImageFolder: there is no item ", index, ", only ", listing_->samples.size()));
  const Sample& sample = listing_->samples[index];
  write_pixels(sample, generator, reinterpret_cast<float*>(memory.data));
  *reinterpret_cast<std::int64_t*>(memory.target) = sample.target;
}

void ImageFolder::write_pixels(const Sample& sample, ItemGenerator& generator, float* result) const {
  DecodedImage& image = scratch_image(options_.channels);
  decode_file(sample.file, Decode::kPixels, image);
  const ImageSize size = resized(options_, image.size);
  const ImageSize wanted{layout_.data.sizes[1], layout_.data.sizes[2]};
  ImageSize given{};
  try {
    given = transform_.size_of_result(size);
  } catch (const UsageError& error) {
    throw DataError(sample.file, c10::str("doesn't fit: ", error.what()));
  }
  if (given != wanted)
    throw DataError(sample.file, c10::str("gives an image of ", given.height, " x ", given.width,
                                          " pixels, and the first file one of ", wanted.height, " x ", wanted.width,
                                          ": use a crop or resize"));
  if (size == image.size) {
    transform_.apply(image.view(), generator, result);
    return;
  }
  const torch::NoGradGuard no_grad;
  const at::Tensor planes = resize_pixels(image, size);
  transform_.apply(
      {planes.const_data_ptr<std::uint8_t>(), options_.channels, size, size.height * size.width, size.width, 1},
      generator, result);
}

}  // namespace retinue
