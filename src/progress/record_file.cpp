#include "progress/record_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "os/files/descriptor_calls.h"
#include "os/files/shared_file.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr int kAppendFlags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC;

FileDescriptor open_records(const std::string& path, int flags) {
  FileDescriptor file(open(path.c_str(), flags, 0666));
  if (!file) throw SystemError(fmt::format("SummaryWriter: cannot make the file {}", path), errno);
  return file;
}

}  // namespace

RecordFile RecordFile::make(const std::string& path) {
  return {path, open_records(path, kAppendFlags | O_EXCL)};
}

RecordFile RecordFile::append_lines(const std::string& path) {
  RecordFile lines(path, open_records(path, kAppendFlags));
  const std::uint64_t bytes = facts_of(lines.file_.get()).bytes;
  if (bytes > 0 && read_from(lines.file_.get(), bytes - 1) != "\n") lines.add("\n");
  return lines;
}

void RecordFile::forget_pending() {
  pending_.clear();
  ends_.clear();
}

void RecordFile::write() {
  if (pending_.empty()) return;
  const std::uint64_t before = facts_of(file_.get()).bytes;
  const bool is_written = write_all(file_.get(), pending_);
  const int error = errno;
  if (is_written) return forget_pending();
  const std::uint64_t written = facts_of(file_.get()).bytes - before;
  const auto behind = std::upper_bound(ends_.begin(), ends_.end(), written);
  const std::uint64_t whole = behind == ends_.begin() ? 0 : *(behind - 1);
  if (written != whole) truncate_file(file_.get(), before + whole);
  const std::size_t lost = ends_.size() - static_cast<std::size_t>(behind - ends_.begin());
  forget_pending();
  throw SystemError(
      fmt::format("SummaryWriter: cannot write {}: {} records are lost, what was written before is whole", path_, lost),
      error);
}

}  // namespace retinue
