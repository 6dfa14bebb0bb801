#include "torch/checkpoint/zip_file.h"

#include <utility>

namespace retinue {
namespace {

constexpr std::uint16_t kVersion = 45;  // The first one with sizes of 64 bits.
constexpr std::uint16_t kDate = 0x21;   // 1 January 1980.
constexpr std::uint16_t kZip64Extra = 0x0001;
constexpr std::uint16_t kPaddingExtra = 0x4246;  // "FB", as PyTorch.
constexpr std::uint16_t kIn64Bits16 = 0xFFFF;    // The value is in the fields of 64 bits.
constexpr std::uint32_t kIn64Bits32 = 0xFFFFFFFF;
constexpr std::uint64_t kHeaderBytes = 30;
constexpr std::uint64_t kHeaderExtraBytes = 4 + 16;
constexpr std::uint64_t kPaddingBytes = 4;

class LittleEndian {
 public:
  template <class... Values>
  LittleEndian& put(Values... values) {
    (put_one(values), ...);
    return *this;
  }
  LittleEndian& text(const std::string& value) {
    bytes_ += value;
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  template <class Value>
  void put_one(Value value) {
    for (std::size_t i = 0; i < sizeof value; ++i) bytes_ += static_cast<char>(value >> 8 * i & 0xff);
  }

  std::string bytes_;
};

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

}  // namespace

std::size_t ZipLayout::add(std::string name, std::uint64_t bytes) {
  headers_.push_back(end_);
  const std::uint64_t least = end_ + kHeaderBytes + name.size() + kHeaderExtraBytes + kPaddingBytes;
  const std::uint64_t offset = (least + kZipAlignment - 1) / kZipAlignment * kZipAlignment;
  records_.push_back({.name = std::move(name), .bytes = bytes, .offset = offset});
  end_ = offset + bytes;
  return records_.size() - 1;
}

std::string ZipLayout::header(std::size_t index) const {
  const ZipRecord& record = records_[index];
  const std::uint64_t padding =
      record.offset - headers_[index] - kHeaderBytes - record.name.size() - kHeaderExtraBytes - kPaddingBytes;
  LittleEndian bytes;
  bytes.put(U32{0x04034b50}, kVersion, U16{0}, U16{0}, U16{0}, kDate, record.crc, kIn64Bits32, kIn64Bits32)
      .put(static_cast<U16>(record.name.size()), static_cast<U16>(kHeaderExtraBytes + kPaddingBytes + padding))
      .text(record.name)
      .put(kZip64Extra, U16{16}, record.bytes, record.bytes)
      .put(kPaddingExtra, static_cast<U16>(padding))
      .text(std::string(padding, 'Z'));
  return bytes.take();
}

std::string ZipLayout::directory() const {
  LittleEndian bytes;
  for (std::size_t i = 0; i < records_.size(); ++i) {
    const ZipRecord& record = records_[i];
    bytes.put(U32{0x02014b50}, kVersion, kVersion, U16{0}, U16{0}, U16{0}, kDate, record.crc, kIn64Bits32, kIn64Bits32)
        .put(static_cast<U16>(record.name.size()), U16{28}, U16{0}, U16{0}, U16{0}, U32{0}, kIn64Bits32)
        .text(record.name)
        .put(kZip64Extra, U16{24}, record.bytes, record.bytes, headers_[i]);
  }
  std::string directory = bytes.take();
  const U64 size = directory.size();
  const U64 count = records_.size();
  bytes.put(U32{0x06064b50}, U64{44}, kVersion, kVersion, U32{0}, U32{0}, count, count, size, end_)
      .put(U32{0x07064b50}, U32{0}, U64{end_ + size}, U32{1})
      .put(U32{0x06054b50}, U16{0}, U16{0}, kIn64Bits16, kIn64Bits16, kIn64Bits32, kIn64Bits32, U16{0});
  return directory + bytes.take();
}

}  // namespace retinue
