#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace retinue {

/// A file in a zip file, uncompressed.
struct ZipRecord {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  ///< Of its first byte, a multiple of kZipAlignment.
  std::uint32_t crc = 0;
};

/// What PyTorch's files have, so that Python can map tensors.
constexpr std::uint64_t kZipAlignment = 64;

/// A zip file whose contents several processes write. Its records lie behind one another, each after its header, and
/// the directory is at the end. All sizes are written as 64 bits.
class ZipLayout {
 public:
  /// Places a record after the others; its CRC-32 may be set later. Returns its index.
  std::size_t add(std::string name, std::uint64_t bytes);

  std::vector<ZipRecord>& records() { return records_; }
  const std::vector<ZipRecord>& records() const { return records_; }
  /// The end of the last record, where the directory begins.
  std::uint64_t end() const { return end_; }

  std::uint64_t header_offset(std::size_t index) const { return headers_[index]; }
  /// The bytes between header_offset() and the record's offset.
  std::string header(std::size_t index) const;
  std::string directory() const;

 private:
  std::vector<ZipRecord> records_;
  std::vector<std::uint64_t> headers_;
  std::uint64_t end_ = 0;
};

}  // namespace retinue
