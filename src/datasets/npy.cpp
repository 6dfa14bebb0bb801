#include "retinue/datasets/npy.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/data_file.h"

namespace retinue {
namespace {

struct NpyHeader {
  std::string type = {};
  bool is_fortran = false;
  std::vector<std::int64_t> sizes = {};
};

/// Reads the header's text, a literal of a Python dict with three known keys:
/// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class NpyHeaderReader {
 public:
  explicit NpyHeaderReader(std::string_view text) : rest_(text) {}

  /// Nothing: it is something else.
  std::optional<NpyHeader> read() {
    NpyHeader header;
    int keys = 0;
    if (!take('{')) return std::nullopt;
    while (!take('}')) {
      const auto key = take_string();
      if (!key || !take(':') || !read_value(*key, header)) return std::nullopt;
      ++keys;
      if (!take(',') && !next_is('}')) return std::nullopt;
    }
    skip_spaces();
    return keys == 3 && rest_.empty() ? std::optional(header) : std::nullopt;
  }

 private:
  bool read_value(std::string_view key, NpyHeader& header) {
    if (key == "descr") {
      const auto type = take_string();
      header.type = type.value_or("");
      return type.has_value();
    }
    if (key == "fortran_order") {
      header.is_fortran = take_word("True");
      return header.is_fortran || take_word("False");
    }
    return key == "shape" && read_shape(header.sizes);
  }

  bool read_shape(std::vector<std::int64_t>& sizes) {
    if (!take('(')) return false;
    while (!take(')')) {
      skip_spaces();
      std::int64_t size = 0;
      const auto [end, problem] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
      if (problem != std::errc() || size < 0 || sizes.size() == 64) return false;
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      sizes.push_back(size);
      if (!take(',') && !next_is(')')) return false;
    }
    return true;
  }

  void skip_spaces() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size())); }
  bool next_is(char wanted) {
    skip_spaces();
    return !rest_.empty() && rest_.front() == wanted;
  }
  bool take(char wanted) {
    if (!next_is(wanted)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take_word(std::string_view word) {
    skip_spaces();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  std::optional<std::string_view> take_string() {
    skip_spaces();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) return std::nullopt;
    const std::size_t end = rest_.find(rest_.front(), 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view string = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return string;
  }

  std::string_view rest_;
};

std::optional<at::ScalarType> npy_type(std::string_view type) {
  static constexpr struct {
    std::string_view name;
    at::ScalarType type;
  } kTypes[] = {{"|b1", at::kBool},         {"|u1", at::kByte},          {"|i1", at::kChar},   {"<i2", at::kShort},
                {"<i4", at::kInt},          {"<i8", at::kLong},          {"<f2", at::kHalf},   {"<f4", at::kFloat},
                {"<f8", at::kDouble},       {"<u2", at::kUInt16},        {"<u4", at::kUInt32}, {"<u8", at::kUInt64},
                {"<c8", at::kComplexFloat}, {"<c16", at::kComplexDouble}};
  for (const auto& each : kTypes)
    if (each.name == type) return each.type;
  return std::nullopt;
}

/// Where the data begin, and the header before them.
std::pair<std::size_t, NpyHeader> parse_header(const std::filesystem::path& file, std::span<const std::byte> bytes) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!kMagic.starts_with(text.substr(0, kMagic.size())))
    throw DataError(file, "is not an npy file: it begins with other bytes");
  const auto byte = [&](std::size_t at) { return std::to_integer<std::size_t>(bytes[at]); };
  const std::size_t fixed = bytes.size() > 6 && byte(6) > 1 ? 12 : 10;
  if (bytes.size() < fixed) throw DataError(file, "is truncated; copy it again");
  if (byte(6) < 1 || byte(6) > 3)
    throw DataError(file, c10::str("is an npy file of version ", byte(6), ", and only 1 to 3 can be read"));
  std::size_t length = byte(8) | byte(9) << 8u;
  if (fixed == 12) length |= byte(10) << 16u | byte(11) << 24u;
  if (length > bytes.size() - fixed) throw DataError(file, "is truncated; copy it again");
  const auto header = NpyHeaderReader(text.substr(fixed, length)).read();
  if (!header) throw DataError(file, "is damaged, or not an npy file: its header can't be read");
  return {fixed + length, *header};
}

std::vector<std::int64_t> strides_of(const NpyHeader& header) {
  std::vector<std::int64_t> strides(header.sizes.size());
  std::int64_t stride = 1;
  for (std::size_t i = 0; i < strides.size(); ++i) {
    const std::size_t at = header.is_fortran ? i : strides.size() - 1 - i;
    strides[at] = stride;
    stride *= std::max<std::int64_t>(header.sizes[at], 1);
  }
  return strides;
}

}  // namespace

at::Tensor read_npy(const std::filesystem::path& file) {
  auto mapped = std::make_shared<const MappedFile>(file);
  const std::span<std::byte> bytes = mapped->bytes();
  const auto [start, header] = parse_header(file, bytes);
  const auto type = npy_type(header.type);
  if (!type)
    throw DataError(file, c10::str("has elements of type '", header.type,
                                   "', which LibTorch doesn't have; convert them with numpy's astype()"));
  const auto wanted = bytes_of(header.sizes, c10::elementSize(*type));
  if (!wanted)
    throw DataError(file, c10::str("is damaged: its header claims sizes of ", at::IntArrayRef(header.sizes)));
  if (bytes.size() - start < *wanted) throw DataError(file, "is truncated; copy it again");
  if (bytes.size() - start > *wanted) throw DataError(file, "is longer than its header says");
  const std::vector<std::int64_t> strides = strides_of(header);
  std::byte* const data = bytes.data() + start;
  const at::TensorOptions options(*type);
  if (*wanted == 0) return at::empty(header.sizes, options);
  // Files of old versions of NumPy align data to 16 bytes, and other programs' perhaps not at all.
  if (start % c10::elementSize(*type) != 0) {
    at::Tensor copy = at::empty_strided(header.sizes, strides, options);
    std::memcpy(copy.mutable_data_ptr(), data, *wanted);
    return copy;
  }
  return at::from_blob(
      data, header.sizes, strides, [mapped = std::move(mapped)](void*) {}, options);
}

}  // namespace retinue
