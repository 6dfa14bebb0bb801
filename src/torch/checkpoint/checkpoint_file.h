#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace retinue {

/// An open file. Errors of its functions: SystemError, which names the file.
class CheckpointFile {
 public:
  enum class Access : std::uint8_t { kRead, kWrite, kCreate };

  CheckpointFile(std::filesystem::path path, Access access);
  ~CheckpointFile();
  CheckpointFile(const CheckpointFile&) = delete;
  CheckpointFile& operator=(const CheckpointFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const;
  /// Takes the space on the disk, so that a full disk is noticed before anything is written.
  void reserve(std::uint64_t bytes);
  void write(std::uint64_t offset, const void* data, std::size_t bytes);
  /// Asks the kernel to begin writing these bytes to the disk. Blocking: never, except where the disk is busy.
  void begin_flush(std::uint64_t offset, std::uint64_t bytes);
  /// Returns false where the file ends before.
  bool read(std::uint64_t offset, void* data, std::size_t bytes) const;
  /// Waits until all that was written is on the disk.
  void sync();

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// Waits until the folder's entries are on the disk. Errors: SystemError.
void sync_folder(const std::filesystem::path& folder);

}  // namespace retinue
