#include "retinue/torch/image_transforms.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "retinue/base/error.h"
#include "retinue/torch/detail/batch_source.h"

namespace retinue {
namespace {

/// Which pixels of the image a result's are: a window, which may reach over the image's edges.
struct Window {
  std::int64_t top;
  std::int64_t left;
  ImageSize size;
  bool is_flipped;
};

float value_of(const std::vector<float>& values, std::size_t channel, float otherwise) {
  if (values.empty()) return otherwise;
  return values.size() == 1 ? values.front() : values[channel];
}

void check_values(const std::vector<float>& values, const char* name, std::int64_t channels) {
  if (values.size() > 1 && static_cast<std::int64_t>(values.size()) != channels)
    throw UsageError(c10::str("ImageTransforms: ", values.size(), " values of ", name, " for ", channels, " channels"));
}

void check_transforms(const ImageTransforms& options, std::int64_t channels) {
  check_values(options.mean, "mean", channels);
  check_values(options.std, "std", channels);
  if (std::find(options.std.begin(), options.std.end(), 0.0f) != options.std.end())
    throw UsageError("ImageTransforms: a std is 0");
  if (options.random_crop && options.center_crop)
    throw UsageError("ImageTransforms: random_crop and center_crop exclude each other");
  if (options.padding < 0 || (options.padding > 0 && !options.random_crop))
    throw UsageError("ImageTransforms: padding is for random_crop, and not negative");
  for (const auto& crop : {options.random_crop, options.center_crop})
    if (crop && (crop->height < 1 || crop->width < 1)) throw UsageError("ImageTransforms: a crop has no pixels");
  if (!(options.horizontal_flip >= 0 && options.horizontal_flip <= 1))
    throw UsageError("ImageTransforms: horizontal_flip is a probability, from 0 to 1");
}

/// torchvision rounds half to even.
std::int64_t half_rounded(std::int64_t difference) {
  const std::int64_t half = difference / 2;
  return difference % 2 != 0 && half % 2 != 0 ? half + 1 : half;
}

Window choose_window(const ImageTransforms& options, ImageSize image, ItemGenerator& generator) {
  Window window{0, 0, image, false};
  if (options.random_crop) {
    window.size = *options.random_crop;
    const std::int64_t rows = image.height + 2 * options.padding - window.size.height + 1;
    const std::int64_t columns = image.width + 2 * options.padding - window.size.width + 1;
    window.top = static_cast<std::int64_t>(generator.below(static_cast<std::uint32_t>(rows))) - options.padding;
    window.left = static_cast<std::int64_t>(generator.below(static_cast<std::uint32_t>(columns))) - options.padding;
  } else if (options.center_crop) {
    window.size = *options.center_crop;
    window.top = half_rounded(image.height - window.size.height);
    window.left = half_rounded(image.width - window.size.width);
  }
  window.is_flipped = options.horizontal_flip > 0 && generator.uniform() < options.horizontal_flip;
  return window;
}

/// A row of the result; `row` is the image's, or null outside of it.
void write_row(const std::uint8_t* row, std::int64_t pixel_step, std::int64_t image_width, const Window& window,
               const std::array<float, 256>& values, float* result) {
  const std::int64_t width = window.size.width;
  const std::int64_t first = row == nullptr ? width : std::clamp<std::int64_t>(-window.left, 0, width);
  const std::int64_t last = std::clamp<std::int64_t>(image_width - window.left, first, width);
  const std::uint8_t* pixel = row == nullptr ? nullptr : row + (window.left + first) * pixel_step;
  if (!window.is_flipped) {
    std::fill(result, result + first, values[0]);
    for (std::int64_t x = first; x < last; ++x, pixel += pixel_step) result[x] = values[*pixel];
    std::fill(result + last, result + width, values[0]);
  } else {
    std::fill(result + width - first, result + width, values[0]);
    for (std::int64_t x = first; x < last; ++x, pixel += pixel_step) result[width - 1 - x] = values[*pixel];
    std::fill(result, result + width - last, values[0]);
  }
}

at::Tensor checked_images(const at::Tensor& images) {
  if (!images.defined() || images.scalar_type() != at::kByte || !images.device().is_cpu() ||
      images.layout() != at::kStrided || (images.dim() != 3 && images.dim() != 4))
    throw UsageError(
        "ImageDataset: images are a uint8 tensor [items, channels, height, width] or [items, height, width]");
  return images.dim() == 3 ? images.unsqueeze(1) : images;
}

at::Tensor checked_targets(const at::Tensor& targets, std::int64_t images) {
  if (!targets.defined() || targets.layout() != at::kStrided || !targets.device().is_cpu())
    throw UsageError("ImageDataset: targets are a dense tensor of the CPU");
  if (targets.dim() == 0 || targets.size(0) != images)
    throw UsageError(c10::str("ImageDataset: ", images, " images, and targets of sizes ", targets.sizes()));
  return targets.detach();
}

}  // namespace

ImageTransform::ImageTransform(ImageTransforms options, std::int64_t channels) : options_(std::move(options)) {
  check_transforms(options_, channels);
  values_.resize(static_cast<std::size_t>(channels));
  for (std::size_t channel = 0; channel < values_.size(); ++channel) {
    const float mean = value_of(options_.mean, channel, 0);
    const float std = value_of(options_.std, channel, 1);
    // Each step rounded, as in ToTensor and Normalize.
    for (std::size_t byte = 0; byte < values_[channel].size(); ++byte) {
      const float unit = static_cast<float>(byte) / 255.0f;
      const float centred = unit - mean;
      values_[channel][byte] = centred / std;
    }
  }
}

ImageSize ImageTransform::size_of_result(ImageSize image) const {
  const std::optional<ImageSize>& crop = options_.random_crop ? options_.random_crop : options_.center_crop;
  if (!crop) return image;
  if (crop->height > image.height + 2 * options_.padding || crop->width > image.width + 2 * options_.padding)
    throw UsageError(c10::str("ImageTransforms: a crop of ", crop->height, " x ", crop->width,
                              " pixels is larger than an image of ", image.height, " x ", image.width,
                              " with a padding of ", options_.padding));
  return *crop;
}

void ImageTransform::apply(const PixelView& image, ItemGenerator& generator, float* result) const {
  size_of_result(image.size);
  const Window window = choose_window(options_, image.size, generator);
  for (std::int64_t channel = 0; channel < channels(); ++channel) {
    const std::uint8_t* const pixels = image.pixels + channel * image.channel_step;
    for (std::int64_t y = window.top; y < window.top + window.size.height; ++y, result += window.size.width) {
      const bool is_inside = y >= 0 && y < image.size.height;
      write_row(is_inside ? pixels + y * image.row_step : nullptr, image.pixel_step, image.size.width, window,
                values_[static_cast<std::size_t>(channel)], result);
    }
  }
}

ImageDataset::ImageDataset(const at::Tensor& images, const at::Tensor& targets, const ImageTransforms& transforms)
    : images_(checked_images(images)),
      targets_(checked_targets(targets, images_.size(0))),
      transform_(transforms, images_.size(1)) {
  const ImageSize size = transform_.size_of_result({images_.size(2), images_.size(3)});
  layout_.data = {{images_.size(1), size.height, size.width}, at::kFloat};
  layout_.target = PartLayout{targets_.sizes().slice(1).vec(), targets_.scalar_type()};
}

torch::data::Example<> ImageDataset::get(std::size_t index) {
  ItemGenerator generator = draw_item_generator();
  torch::data::Example<> item{at::empty(layout_.data.sizes, at::kFloat),
                              at::empty(layout_.target->sizes, at::TensorOptions(layout_.target->type))};
  write_item(
      index, generator,
      {static_cast<std::byte*>(item.data.mutable_data_ptr()), static_cast<std::byte*>(item.target.mutable_data_ptr())});
  return item;
}

void ImageDataset::write_item(std::size_t index, ItemGenerator& generator, const ItemMemory& memory) const {
  if (index >= *size()) throw UsageError(c10::str("ImageDataset: there is no item ", index, ", only ", *size()));
  const PixelView image{images_.const_data_ptr<std::uint8_t>() + static_cast<std::int64_t>(index) * images_.stride(0),
                        images_.size(1),
                        {images_.size(2), images_.size(3)},
                        images_.stride(1),
                        images_.stride(2),
                        images_.stride(3)};
  transform_.apply(image, generator, reinterpret_cast<float*>(memory.data));
  detail::copy_row(targets_, index, memory.target);
}

ItemGenerator draw_item_generator() {
  auto* const torchs =
      at::get_generator_or_default<at::CPUGeneratorImpl>(std::nullopt, at::detail::getDefaultCPUGenerator());
  const std::lock_guard lock(torchs->mutex_);
  return ItemGenerator(torchs->random64());
}

}  // namespace retinue
