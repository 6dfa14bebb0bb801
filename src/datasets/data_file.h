#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace retinue {

/// Errors: DataError, if there is no such file.
void check_is_file(const std::filesystem::path& file);

/// Reads a whole file into memory that is used again. Errors: DataError.
void read_whole_file(const std::filesystem::path& file, std::vector<std::uint8_t>& bytes);

/// Returns the bytes of a tensor of these sizes, or nothing if no tensor can have them: with a 0 among them, a tensor
/// has no elements, and yet its strides must not overflow.
std::optional<std::size_t> bytes_of(const std::vector<std::int64_t>& sizes, std::size_t element_bytes);

/// A file's bytes, mapped: written pages are this process's own.
class MappedFile {
 public:
  /// Errors: DataError.
  explicit MappedFile(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace retinue
