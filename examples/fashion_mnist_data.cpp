#include "fashion_mnist_data.h"

#include <zlib.h>

#include <cstdlib>
#include <memory>
#include <utility>

namespace fashion_mnist {
namespace {

namespace fs = std::filesystem;

// An IDX file: a magic number of two zero bytes, the element type and the number of dimensions; the dimensions, big
// endian; the elements.
constexpr std::uint32_t kImagesMagic = 0x00000803;
constexpr std::uint32_t kLabelsMagic = 0x00000801;
// The real files hold 60,000 images at most; the bound keeps a broken header from asking for all memory.
constexpr std::uint32_t kMaxCount = 1'000'000;

class IdxFile {
 public:
  explicit IdxFile(const fs::path& path) : path_(path), file_(nullptr, gzclose_r) {
    if (!fs::is_regular_file(path_))
      fail("is missing; install the package dataset-fashion-mnist, or name the folder with --data or RETINUE_DATA");
    file_.reset(gzopen(path_.c_str(), "rb"));
    if (!file_) fail("cannot be opened; check its permissions");
  }

  std::uint32_t read_number() {
    std::uint8_t bytes[4];
    read(bytes, sizeof bytes);
    return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
  }

  void expect_number(std::uint32_t wanted, const char* what) {
    const std::uint32_t found = read_number();
    if (found != wanted)
      fail("is not a Fashion-MNIST file: its " + std::string(what) + " is " + std::to_string(found) + ", expected " +
           std::to_string(wanted));
  }

  std::uint32_t read_count() {
    const std::uint32_t count = read_number();
    if (count == 0 || count > kMaxCount)
      fail("is not a Fashion-MNIST file: it claims to hold " + std::to_string(count) + " items");
    return count;
  }

  std::vector<std::uint8_t> read_items(std::size_t bytes) {
    std::vector<std::uint8_t> items(bytes);
    read(items.data(), bytes);
    return items;
  }

  void expect_end() {
    std::uint8_t byte;
    if (gzread(file_.get(), &byte, 1) != 0) fail("is not a Fashion-MNIST file: it is longer than its header says");
  }

  [[noreturn]] void fail(const std::string& problem) const {
    throw DataError("data file " + path_.string() + " " + problem);
  }

 private:
  void read(std::uint8_t* into, std::size_t bytes) {
    const int got = gzread(file_.get(), into, static_cast<unsigned>(bytes));
    if (got == static_cast<int>(bytes)) return;
    int error = Z_OK;
    gzerror(file_.get(), &error);
    if (error == Z_DATA_ERROR) fail("is damaged: it cannot be decompressed; copy it again");
    fail("is truncated; copy it again");
  }

  fs::path path_;
  std::unique_ptr<gzFile_s, decltype(&gzclose_r)> file_;
};

std::vector<std::uint8_t> read_images(const fs::path& path) {
  IdxFile file(path);
  file.expect_number(kImagesMagic, "first word");
  const std::size_t count = file.read_count();
  file.expect_number(LabelledImages::kSide, "number of rows");
  file.expect_number(LabelledImages::kSide, "number of columns");
  auto pixels = file.read_items(count * LabelledImages::kSide * LabelledImages::kSide);
  file.expect_end();
  return pixels;
}

std::vector<std::uint8_t> read_labels(const fs::path& path) {
  IdxFile file(path);
  file.expect_number(kLabelsMagic, "first word");
  auto labels = file.read_items(file.read_count());
  file.expect_end();
  for (const std::uint8_t label : labels) {
    if (label >= LabelledImages::kClasses)
      file.fail("is not a Fashion-MNIST file: it has a class " + std::to_string(label));
  }
  return labels;
}

LabelledImages read_part(const fs::path& folder, const std::string& prefix) {
  const fs::path labels_path = folder / (prefix + "-labels-idx1-ubyte.gz");
  LabelledImages part;
  part.pixels = read_images(folder / (prefix + "-images-idx3-ubyte.gz"));
  part.labels = read_labels(labels_path);
  const std::size_t images = part.pixels.size() / (LabelledImages::kSide * LabelledImages::kSide);
  if (images != part.count()) {
    throw DataError("data file " + labels_path.string() + " holds " + std::to_string(part.count()) +
                    " labels, but there are " + std::to_string(images) + " images; both must come from one source");
  }
  return part;
}

}  // namespace

fs::path data_folder(const std::string& requested) {
  if (!requested.empty()) return requested;
  const char* named = std::getenv("RETINUE_DATA");
  return named != nullptr && *named != '\0' ? named : "/usr/share/datasets/fashion-mnist";
}

Dataset read_dataset(const fs::path& folder) {
  Dataset dataset;
  dataset.training = read_part(folder, "train");
  dataset.test = read_part(folder, "t10k");
  return dataset;
}

}  // namespace fashion_mnist
