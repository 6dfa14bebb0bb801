#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace fashion_mnist {

/// A data file is missing, cut short, or something else than it should be. The message names the file.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Grey images with their classes, as they lie in the files.
struct LabelledImages {
  static constexpr std::size_t kSide = 28;
  static constexpr int kClasses = 10;

  std::vector<std::uint8_t> pixels;  ///< count() times kSide rows of kSide pixels.
  std::vector<std::uint8_t> labels;  ///< Each below kClasses.

  std::size_t count() const { return labels.size(); }
};

struct Dataset {
  LabelledImages training;
  LabelledImages test;
};

/// The folder to read: `requested`, else the environment variable RETINUE_DATA, else where Debian's package
/// dataset-fashion-mnist puts its files.
std::filesystem::path data_folder(const std::string& requested);

/// Reads the four gzipped IDX files of a folder. Errors: DataError.
Dataset read_dataset(const std::filesystem::path& folder);

}  // namespace fashion_mnist
