#pragma once

#include <filesystem>
#include <string>

#include "retinue/base/error.h"

namespace retinue {

/// A data file is missing, truncated, damaged, or something else than it should be. The message names the file and the
/// problem.
class DataError : public Error {
 public:
  DataError(const std::filesystem::path& file, const std::string& problem)
      : Error("data file " + file.string() + " " + problem), file_(file) {}

  const std::filesystem::path& file() const noexcept { return file_; }

 private:
  std::filesystem::path file_;
};

}  // namespace retinue
