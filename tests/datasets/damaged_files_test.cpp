// Files that differ from good ones in a few bytes, or end early: each is read, or refused by a DataError.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "datasets/data_files.h"
#include "retinue/datasets/csv.h"
#include "retinue/datasets/idx.h"
#include "retinue/datasets/image_folder.h"
#include "retinue/datasets/npy.h"

namespace retinue {
namespace {

using test::contents_of;
using test::golden;
using Read = std::function<at::Tensor(const std::filesystem::path& file)>;

constexpr int kRounds = 300;

class DamagedFiles : public test::DataFiles {
 protected:
  /// Returns how many were refused.
  int read_damaged(const std::string& good, const Read& read) {
    std::mt19937 random(1);
    int refused = 0;
    for (int round = 0; round < kRounds; ++round) {
      std::string bytes = good;
      // Headers are at the beginning, and there is more to go wrong.
      const std::size_t reach = round % 2 == 0 ? std::min<std::size_t>(good.size(), 160) : good.size();
      for (unsigned left = 1 + random() % 3; left > 0; --left)
        bytes[random() % reach] = static_cast<char>(random() % (round % 4 < 2 ? 256 : 8));
      if (round % 5 == 0) bytes.resize(random() % bytes.size());
      const std::filesystem::path file = write("damaged", bytes);
      try {
        const at::Tensor tensor = read(file);
        if (tensor.numel() > 0) tensor.reshape({-1})[-1].item();  // All of it is memory that may be read.
      } catch (const DataError& error) {
        EXPECT_EQ(error.file(), file);
        ++refused;
      }
    }
    return refused;
  }
};

TEST_F(DamagedFiles, OfNumPyAreReadOrRefused) {
  for (const char* name : {"float32.npy", "fortran.npy", "bool.npy", "empty.npy", "complex64.npy"})
    EXPECT_GT(read_damaged(contents_of(golden(name)), read_npy), 0) << name;
}

TEST_F(DamagedFiles, OfIdxAreReadOrRefused) {
  const std::string plain("\0\0\x08\3\0\0\0\2\0\0\0\3\0\0\0\5", 16);
  EXPECT_GT(read_damaged(plain + std::string(30, 'x'), [](const auto& file) { return read_idx(file); }), 0);
}

TEST_F(DamagedFiles, OfCommasAreReadOrRefused) {
  const Read read = [](const auto& file) { return read_csv(file, {.header = false}).values; };
  EXPECT_GT(read_damaged("1,2,3\n4.5,-6e3,\"7\"\r\nnan,inf, 8 \n", read), 0);
}

TEST_F(DamagedFiles, OfImagesAreReadOrRefused) {
  for (const char* name : {"rgb.png", "palette.png", "deep.png", "bits.png", "rgb.jpg", "progressive.jpg", "grey.jpg"})
    EXPECT_GT(read_damaged(contents_of(golden(name)), [](const auto& file) { return read_image(file); }), 0) << name;
}

}  // namespace
}  // namespace retinue
