#include "torch/checkpoint/checkpoint_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "retinue/base/error.h"

namespace retinue {
namespace {

/// The kernel transfers at most 2 GiB at once.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

[[noreturn]] void throw_file_error(const char* what, const std::filesystem::path& path, int errno_value) {
  throw SystemError(std::string("cannot ") + what + " " + path.string(), errno_value);
}

int flags_of(CheckpointFile::Access access) {
  switch (access) {
    case CheckpointFile::Access::kRead:
      return O_RDONLY;
    case CheckpointFile::Access::kWrite:
      return O_WRONLY;
    default:
      return O_RDWR | O_CREAT | O_TRUNC;
  }
}

}  // namespace

CheckpointFile::CheckpointFile(std::filesystem::path path, Access access) : path_(std::move(path)) {
  do descriptor_ = open(path_.c_str(), flags_of(access) | O_CLOEXEC, 0666);
  while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) throw_file_error(access == Access::kCreate ? "create" : "open", path_, errno);
}

CheckpointFile::~CheckpointFile() {
  close(descriptor_);
}

std::uint64_t CheckpointFile::size() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) throw_file_error("read the size of", path_, errno);
  return static_cast<std::uint64_t>(status.st_size);
}

void CheckpointFile::reserve(std::uint64_t bytes) {
  if (bytes == 0) return;
  int result = 0;
  do result = fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes));
  while (result != 0 && errno == EINTR);
  if (result == 0) return;
  if (errno != EOPNOTSUPP && errno != ENOSYS)
    throw_file_error(("reserve " + std::to_string(bytes) + " bytes for").c_str(), path_, errno);
  if (ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) throw_file_error("set the size of", path_, errno);
}

void CheckpointFile::write(std::uint64_t offset, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = pwrite(descriptor_, at, std::min(bytes, kMostBytes), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) throw_file_error("write", path_, done == 0 ? ENOSPC : errno);
    at += done;
    offset += static_cast<std::uint64_t>(done);
    bytes -= static_cast<std::size_t>(done);
  }
}

void CheckpointFile::begin_flush(std::uint64_t offset, std::uint64_t bytes) {
  // Errors come again from sync().
  sync_file_range(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE);
}

bool CheckpointFile::read(std::uint64_t offset, void* data, std::size_t bytes) const {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t done = pread(descriptor_, at, std::min(bytes, kMostBytes), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw_file_error("read", path_, errno);
    if (done == 0) return false;
    at += done;
    offset += static_cast<std::uint64_t>(done);
    bytes -= static_cast<std::size_t>(done);
  }
  return true;
}

void CheckpointFile::sync() {
  int result = 0;
  do result = fsync(descriptor_);
  while (result != 0 && errno == EINTR);
  if (result != 0) throw_file_error("write to the disk", path_, errno);
}

void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw_file_error("open", folder, errno);
  const int result = fsync(descriptor);
  const int error = errno;
  close(descriptor);
  // Some file systems of networks have nothing to do here, and say EINVAL.
  if (result != 0 && error != EINVAL) throw_file_error("write to the disk", folder, error);
}

}  // namespace retinue
