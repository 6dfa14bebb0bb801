#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "retinue/torch/image_transforms.h"

namespace retinue {

/// An image that was read: rows of pixels of `channels` bytes each. Its memory is used again for the next one.
struct DecodedImage {
  std::vector<std::uint8_t> pixels = {};
  std::int64_t channels = 0;
  ImageSize size = {};

  PixelView view() const { return {pixels.data(), channels, size, 1, size.width * channels, channels}; }
};

/// Reads the size only, or the whole image. `image.channels` says what is wanted. Errors: DataError.
enum class Decode { kSize, kPixels };
void decode_file(const std::filesystem::path& file, Decode what, DecodedImage& image);

/// The same for the bytes of a file of this format. Returns the problem; empty: there is none.
std::string decode_jpeg(std::span<const std::uint8_t> bytes, Decode what, DecodedImage& image);
std::string decode_png(std::span<const std::uint8_t> bytes, Decode what, DecodedImage& image);

/// Sets the image's size and takes memory for it. Returns the problem with a size that no image has.
std::string begin_image(std::int64_t height, std::int64_t width, Decode what, DecodedImage& image);

}  // namespace retinue
