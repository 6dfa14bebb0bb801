#include "retinue/datasets/idx.h"

#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "datasets/data_file.h"

namespace retinue {
namespace {

// An IDX file: a magic number of two zero bytes, the element type and the number of dimensions; the dimensions, four
// bytes each; the elements. All are big-endian.
std::optional<at::ScalarType> idx_type(std::uint8_t code) {
  switch (code) {
    case 0x08:
      return at::kByte;
    case 0x09:
      return at::kChar;
    case 0x0b:
      return at::kShort;
    case 0x0c:
      return at::kInt;
    case 0x0d:
      return at::kFloat;
    case 0x0e:
      return at::kDouble;
    default:
      return std::nullopt;
  }
}

/// zlib also reads files that aren't gzipped.
class IdxFile {
 public:
  explicit IdxFile(const std::filesystem::path& path) : path_(path), file_(nullptr, gzclose_r) {
    check_is_file(path);
    file_.reset(gzopen(path.c_str(), "rb"));
    if (!file_) fail(std::string("can't be opened: ") + std::strerror(errno));
    gzbuffer(file_.get(), 256u << 10u);
  }

  void read_exactly(std::uint8_t* into, std::size_t bytes) {
    if (read_some(into, bytes) != bytes) fail("is truncated; copy it again");
  }

  /// Returns fewer bytes at the end of the file only.
  std::size_t read_some(std::uint8_t* into, std::size_t bytes) {
    std::size_t done = 0;
    while (done < bytes) {
      constexpr std::size_t kMost = std::size_t{1} << 30u;
      const int got = gzread(file_.get(), into + done, static_cast<unsigned>(std::min(bytes - done, kMost)));
      if (got <= 0) break;
      done += static_cast<std::size_t>(got);
    }
    int error = Z_OK;
    gzerror(file_.get(), &error);
    if (error == Z_BUF_ERROR) fail("is truncated; copy it again");
    if (error != Z_OK && error != Z_STREAM_END) fail("is damaged: it can't be decompressed; copy it again");
    return done;
  }

  std::uint32_t read_number() {
    std::uint8_t bytes[4];
    read_exactly(bytes, sizeof bytes);
    return std::uint32_t{bytes[0]} << 24u | std::uint32_t{bytes[1]} << 16u | std::uint32_t{bytes[2]} << 8u | bytes[3];
  }

  [[noreturn]] void fail(const std::string& problem) const { throw DataError(path_, problem); }

 private:
  const std::filesystem::path& path_;
  std::unique_ptr<gzFile_s, decltype(&gzclose_r)> file_;
};

struct IdxHeader {
  at::ScalarType type;
  std::vector<std::int64_t> sizes;
  std::size_t bytes;
};

IdxHeader read_header(IdxFile& file) {
  std::uint8_t magic[4];
  file.read_exactly(magic, sizeof magic);
  const auto type = idx_type(magic[2]);
  if (magic[0] != 0 || magic[1] != 0 || !type || magic[3] == 0 || magic[3] > 8)
    file.fail("is not an IDX file: it begins with other bytes");
  IdxHeader header{*type, {}, 0};
  for (int i = 0; i < magic[3]; ++i) header.sizes.push_back(file.read_number());
  const auto bytes = bytes_of(header.sizes, c10::elementSize(*type));
  if (!bytes) file.fail(c10::str("is not an IDX file: its header claims sizes of ", at::IntArrayRef(header.sizes)));
  header.bytes = *bytes;
  return header;
}

void check_sizes(const IdxFile& file, const std::vector<std::int64_t>& found, const std::vector<std::int64_t>& wanted) {
  if (wanted.empty()) return;
  const bool fits = found.size() == wanted.size() &&
                    std::equal(found.begin(), found.end(), wanted.begin(),
                               [](std::int64_t is, std::int64_t must) { return must == -1 || is == must; });
  if (!fits)
    file.fail(c10::str("has items of other sizes: ", at::IntArrayRef(found), ", expected were ",
                       at::IntArrayRef(wanted), ", where -1 is any number"));
}

void turn_big_endian(std::uint8_t* elements, std::size_t bytes, std::size_t width) {
  if (width == 1) return;
  for (std::size_t at = 0; at < bytes; at += width) std::reverse(elements + at, elements + at + width);
}

/// Grows with what the file really has: its header may be wrong.
std::vector<std::uint8_t> read_elements(IdxFile& file, std::size_t bytes) {
  constexpr std::size_t kFirst = std::size_t{16} << 20u;
  std::vector<std::uint8_t> elements;
  std::size_t done = 0;
  while (done < bytes) {
    elements.resize(std::min(bytes, std::max(kFirst, 2 * done)));
    file.read_exactly(elements.data() + done, elements.size() - done);
    done = elements.size();
  }
  std::uint8_t more;
  if (file.read_some(&more, 1) != 0) file.fail("is longer than its header says");
  return elements;
}

}  // namespace

at::Tensor read_idx(const std::filesystem::path& path, const std::vector<std::int64_t>& sizes) {
  IdxFile file(path);
  const IdxHeader header = read_header(file);
  check_sizes(file, header.sizes, sizes);
  const std::vector<std::uint8_t> elements = read_elements(file, header.bytes);
  at::Tensor tensor = at::empty(header.sizes, at::TensorOptions(header.type));
  auto* const memory = static_cast<std::uint8_t*>(tensor.mutable_data_ptr());
  std::copy(elements.begin(), elements.end(), memory);
  turn_big_endian(memory, elements.size(), c10::elementSize(header.type));
  return tensor;
}

LabelledImages read_labelled_images(const std::filesystem::path& images, const std::filesystem::path& labels,
                                    std::int64_t classes) {
  LabelledImages read{read_idx(images, {-1, -1, -1}), read_idx(labels, {-1})};
  for (const auto& [file, tensor] : {std::pair{images, read.images}, std::pair{labels, read.labels}})
    if (tensor.scalar_type() != at::kByte) throw DataError(file, "has elements of another type than uint8");
  if (read.images.size(0) != read.labels.size(0))
    throw DataError(labels, c10::str("holds ", read.labels.size(0), " labels, but there are ", read.images.size(0),
                                     " images; both must come from one source"));
  if (read.labels.numel() != 0)
    if (const auto highest = read.labels.max().item<std::int64_t>(); highest >= classes)
      throw DataError(labels, c10::str("has a class ", highest, ", and there are ", classes, " classes"));
  return {read.images.unsqueeze(1), read.labels.to(at::kLong)};
}

LabelledImages read_mnist(const std::filesystem::path& folder, bool train) {
  const auto file = [&](const char* what) {
    const std::filesystem::path plain = folder / (std::string(train ? "train" : "t10k") + what);
    std::filesystem::path gzipped = plain;
    gzipped += ".gz";
    return std::filesystem::exists(plain) && !std::filesystem::exists(gzipped) ? plain : gzipped;
  };
  return read_labelled_images(file("-images-idx3-ubyte"), file("-labels-idx1-ubyte"), 10);
}

}  // namespace retinue
