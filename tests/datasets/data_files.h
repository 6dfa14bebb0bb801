#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "retinue/datasets/data_error.h"
#include "support/paths.h"

namespace retinue::test {

/// A file that NumPy or Pillow wrote (make_golden.py).
inline std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(RETINUE_SOURCE_DIR) / "tests/datasets/golden" / name;
}

inline std::string contents_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// A folder for a test's files.
class DataFiles : public testing::Test {
 protected:
  DataFiles() {
    std::string name = (std::filesystem::temp_directory_path() / "retinue-data-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
  }
  ~DataFiles() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& contents) const {
    const std::filesystem::path file = folder_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::filesystem::remove(file);  // To shorten one takes a file system milliseconds.
    std::ofstream(file, std::ios::binary) << contents;
    return file;
  }

  std::filesystem::path folder_;
};

/// The problem of a DataError, which names the file.
template <class Call>
std::string data_error_of(const std::filesystem::path& file, Call call) {
  try {
    call();
  } catch (const DataError& error) {
    EXPECT_EQ(error.file(), file);
    EXPECT_NE(std::string(error.what()).find(file.string()), std::string::npos) << error.what();
    return error.what();
  }
  return "no DataError";
}

}  // namespace retinue::test
