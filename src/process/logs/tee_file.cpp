#include "process/logs/tee_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "retinue/base/error.h"

namespace retinue {

TeeFile::TeeFile(std::string path, Console& console, std::atomic<std::uint64_t>& shown, LineSplitter splitter)
    : path_(std::move(path)),
      console_(&console),
      shown_(&shown),
      splitter_(std::move(splitter)),
      first_(shown.load(std::memory_order_relaxed)),
      read_(first_) {}

TeeFile::Found TeeFile::read_new(std::string& scratch) {
  if (!file_) file_.reset(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file_) throw SystemError("opening " + path_, errno);
  ssize_t bytes = 0;
  if (limit_ < read_) restart_if_truncated();
  const std::size_t most = std::min<std::uint64_t>(scratch.size(), limit_ - std::min(limit_, read_));
  if (most == 0) return Found::kNothing;
  do {
    bytes = pread(file_.get(), scratch.data(), most, static_cast<off_t>(read_));
    if (bytes < 0) throw SystemError("reading " + path_, errno);
  } while (bytes == 0 && restart_if_truncated());
  if (bytes == 0) return Found::kNothing;
  read_ += static_cast<std::uint64_t>(bytes);
  std::string_view text(scratch.data(), static_cast<std::size_t>(bytes));
  while (!text.empty()) {
    text.remove_prefix(splitter_.take(text, console_->pending(), console_->piece_bytes()));
    console_->seal(*shown_, first_ + splitter_.whole_line_bytes());
  }
  return static_cast<std::size_t>(bytes) == scratch.size() ? Found::kMore : Found::kSome;
}

/// Somebody emptied the file, as log rotation does; its writers go on at its new end.
bool TeeFile::restart_if_truncated() {
  struct stat status {};
  if (fstat(file_.get(), &status) != 0 || static_cast<std::uint64_t>(status.st_size) >= read_) return false;
  first_ = read_ = 0;
  splitter_.restart();
  return true;
}

void TeeFile::limit_to_size() {
  struct stat status {};
  if (stat(path_.c_str(), &status) == 0) limit_ = static_cast<std::uint64_t>(status.st_size);
}

void TeeFile::finish() {
  splitter_.finish(console_->pending());
  console_->seal(*shown_, first_ + splitter_.whole_line_bytes());
}

}  // namespace retinue
