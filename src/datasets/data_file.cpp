#include "datasets/data_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "retinue/datasets/data_error.h"

namespace retinue {
namespace {

/// An open file of known size.
class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path) : path_(path) {
    check_is_file(path);
    fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) throw DataError(path, std::string("can't be opened: ") + std::strerror(errno));
  }
  ~OpenFile() { close(fd_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int fd() const { return fd_; }
  std::size_t bytes() const {
    struct stat status {};
    if (fstat(fd_, &status) != 0) throw DataError(path_, std::string("can't be read: ") + std::strerror(errno));
    return static_cast<std::size_t>(status.st_size);
  }

 private:
  const std::filesystem::path& path_;
  int fd_;
};

}  // namespace

void check_is_file(const std::filesystem::path& file) {
  std::error_code problem;
  const auto status = std::filesystem::status(file, problem);
  if (!std::filesystem::exists(status)) throw DataError(file, "is missing");
  if (!std::filesystem::is_regular_file(status)) throw DataError(file, "is not a file");
}

void read_whole_file(const std::filesystem::path& file, std::vector<std::uint8_t>& bytes) {
  const OpenFile opened(file);
  bytes.resize(opened.bytes());
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = read(opened.fd(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw DataError(file, std::string("can't be read: ") + std::strerror(errno));
    if (got == 0) break;  // It became shorter meanwhile.
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
}

std::optional<std::size_t> bytes_of(const std::vector<std::int64_t>& sizes, std::size_t element_bytes) {
  std::size_t extent = element_bytes;
  for (const std::int64_t size : sizes)
    if (__builtin_mul_overflow(extent, static_cast<std::size_t>(std::max<std::int64_t>(size, 1)), &extent) ||
        extent > std::size_t{1} << 62u)
      return std::nullopt;
  return std::find(sizes.begin(), sizes.end(), 0) == sizes.end() ? extent : 0;
}

MappedFile::MappedFile(const std::filesystem::path& file) {
  const OpenFile opened(file);
  const std::size_t bytes = opened.bytes();
  if (bytes == 0) return;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, opened.fd(), 0);
  if (memory == MAP_FAILED) throw DataError(file, std::string("can't be mapped: ") + std::strerror(errno));
  bytes_ = {static_cast<std::byte*>(memory), bytes};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

}  // namespace retinue
