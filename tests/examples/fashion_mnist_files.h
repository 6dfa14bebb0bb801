#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>

/// Small files of the form of Fashion-MNIST's.
namespace retinue::test {

constexpr int kSide = 28;
constexpr const char* kTrainImages = "train-images-idx3-ubyte.gz";
constexpr const char* kTrainLabels = "train-labels-idx1-ubyte.gz";
constexpr const char* kTestImages = "t10k-images-idx3-ubyte.gz";
constexpr const char* kTestLabels = "t10k-labels-idx1-ubyte.gz";

inline void write_gzipped(const std::filesystem::path& path, const std::string& content) {
  FILE* gzip = popen(fmt::format("gzip -1 > '{}'", path.string()).c_str(), "we");
  if (gzip == nullptr || std::fwrite(content.data(), 1, content.size(), gzip) != content.size() || pclose(gzip) != 0)
    throw std::runtime_error("cannot write " + path.string());
}

inline std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

/// Image `index` is of class index % 10 and shows it: a bright band at a height of its own.
inline std::string images_file(int count) {
  std::string text = big_endian(0x803) + big_endian(count) + big_endian(kSide) + big_endian(kSide);
  for (int index = 0; index < count; ++index) {
    for (int row = 0; row < kSide; ++row) {
      const bool bright = row / 2 == 2 + index % 10;
      for (int column = 0; column < kSide; ++column) text.push_back(bright ? char(200 + column) : char(index % 7));
    }
  }
  return text;
}

inline std::string labels_file(int count) {
  std::string text = big_endian(0x801) + big_endian(count);
  for (int index = 0; index < count; ++index) text.push_back(static_cast<char>(index % 10));
  return text;
}

/// All four files, of so many images.
inline void write_fashion_mnist(const std::filesystem::path& folder, int training, int test) {
  write_gzipped(folder / kTrainImages, images_file(training));
  write_gzipped(folder / kTrainLabels, labels_file(training));
  write_gzipped(folder / kTestImages, images_file(test));
  write_gzipped(folder / kTestLabels, labels_file(test));
}

}  // namespace retinue::test
