#include "store/log_file.h"

#include <fmt/format.h>

#include <utility>

#include "os/testing/crash_point.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// Gives the turn back, whoever else has the opened file.
class Unlock {
 public:
  explicit Unlock(int fd) : fd_(fd) {}
  ~Unlock() { unlock_file(fd_); }
  Unlock(const Unlock&) = delete;
  Unlock& operator=(const Unlock&) = delete;

 private:
  int fd_;
};

}  // namespace

LogFile::LogFile(std::string path)
    : path_(std::move(path)), kept_(make_shared_file(path_)), facts_(facts_of(kept_.get())) {
  if (!facts_.is_regular) throw UsageError(fmt::format("{} is not a regular file: choose another path", path_));
}

void LogFile::run(FileLock kind, const FileDescriptor& fd, Deadline deadline, const std::function<void()>& body) {
  RETINUE_CRASH_POINT();
  if (!lock_file(fd.get(), kind, deadline))
    throw TimeoutError(fmt::format(
        "FileStore {}: another process holds its lock and does not release it: find that process with lsof or "
        "/proc/locks, and continue or end it",
        path_));
  const Unlock unlock(fd.get());
  RETINUE_CRASH_POINT();
  const std::lock_guard lock(mutex_);
  body();
  RETINUE_CRASH_POINT();
}

FileDescriptor LogFile::open() {
  std::optional<FileDescriptor> fd = open_shared_file(path_);
  if (!fd || !facts_of(fd->get()).is_same(facts_))
    throw Closed(
        fmt::format("FileStore {}: its file was removed{}: all members of the job have left, or somebody "
                    "deleted it",
                    path_, fd ? ", and another file is there now" : ""));
  return *std::move(fd);
}

void LogFile::catch_up(int fd, FileLock kind) {
  const FileFacts facts = facts_of(fd);
  if (facts.is_removed) throw Closed(fmt::format("FileStore {}: the last member of the job removed its file", path_));
  if (facts.bytes < state_.taken_bytes())
    throw UsageError(
        fmt::format("FileStore {}: another program truncated the file, which only stores may write", path_));
  const LogState::End end = state_.take(read_from(fd, state_.taken_bytes()));
  if (end == LogState::End::kDamaged)
    throw UsageError(
        fmt::format("{} is not the file of a store, or is damaged at byte {}: choose another path, or delete it", path_,
                    state_.taken_bytes()));
  // Whoever wrote it had the lock and is dead. Readers leave it there.
  if (end == LogState::End::kTorn && kind == FileLock::kExclusive) truncate_file(fd, state_.taken_bytes());
}

void LogFile::look(Deadline deadline, const std::function<void(const LogState&)>& body) {
  const FileDescriptor fd = open();
  run(FileLock::kShared, fd, deadline, [&] {
    catch_up(fd.get(), FileLock::kShared);
    body(state_);
  });
}

void LogFile::change(Deadline deadline, const std::function<void(const Turn&)>& body) {
  const FileDescriptor fd = open();
  run(FileLock::kExclusive, fd, deadline, [&] {
    catch_up(fd.get(), FileLock::kExclusive);
    body(Turn(this, fd.get()));
  });
}

void LogFile::Turn::begin(std::int64_t world_size, const std::string& job) const {
  write(encode_beginning(world_size, job));
}

void LogFile::Turn::append(Record kind, std::int64_t number, std::vector<std::string> strings) const {
  write(encode_record(kind, number, std::move(strings)));
}

void LogFile::Turn::write(const std::string& records) const {
  const std::uint64_t before = state().taken_bytes();
  try {
    write_at(fd_, before, records);
  } catch (const SystemError&) {
    truncate_file(fd_, before);  // As of a full disk, where there is room to shorten.
    throw;
  }
  static_cast<void>(file_->state_.take(records));
}

void LogFile::Turn::remove() const {
  RETINUE_CRASH_POINT();
  remove_file(file_->path_);
}

}  // namespace retinue
