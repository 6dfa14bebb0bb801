#include "os/files/shared_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "os/files/descriptor_calls.h"
#include "os/files/kernel_files.h"
#include "os/testing/crash_point.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

// Far behind all data: locks may lie where a file has no bytes.
constexpr off_t kTurnByte = off_t{1} << 60;
constexpr off_t kMarks = kTurnByte + 1;
constexpr std::chrono::microseconds kFirstPause(20);
constexpr std::chrono::microseconds kLongestPause(2000);
// Where a test kills writers, it does so in the midst of a record too.
#if defined(RETINUE_CRASH_POINTS)
constexpr std::size_t kMostAtOnce = 11;
#else
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;
#endif

constexpr int kOpen = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

/// For messages.
std::string path_of(int fd) {
  const std::string path = target_of_link(fmt::format("/proc/self/fd/{}", fd));
  return path.empty() ? "a shared file" : path;
}

[[noreturn]] void throw_error(const char* doing, int fd, int error, const char* remark = "") {
  throw SystemError(fmt::format("{} {}{}", doing, path_of(fd), remark), error);
}

struct flock lock_of(short kind, off_t start) {
  struct flock lock {};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = 1;
  return lock;
}

bool try_lock(int fd, short kind, off_t start) {
  struct flock lock = lock_of(kind, start);
  for (;;) {
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return true;
    if (errno == EAGAIN || errno == EACCES) return false;
    if (errno != EINTR) throw_error("locking", fd, errno, " (does its file system support locks?)");
  }
}

}  // namespace

FileDescriptor make_shared_file(const std::string& path) {
  FileDescriptor fd(open(path.c_str(), kOpen | O_CREAT, 0600));
  if (!fd) throw SystemError(fmt::format("opening {}", path), errno);
  return fd;
}

std::optional<FileDescriptor> open_shared_file(const std::string& path) {
  FileDescriptor fd(open(path.c_str(), kOpen));
  if (!fd && errno == ENOENT) return std::nullopt;
  if (!fd) throw SystemError(fmt::format("opening {}", path), errno);
  return fd;
}

FileFacts facts_of(int fd) {
  struct stat about {};
  // Of a network file system: the file was removed by another host.
  if (fstat(fd, &about) != 0 && errno == ESTALE) return {.is_regular = true, .is_removed = true};
  if (about.st_mode == 0) throw_error("looking at", fd, errno);
  return {about.st_dev, about.st_ino, static_cast<std::uint64_t>(about.st_size), S_ISREG(about.st_mode),
          about.st_nlink == 0};
}

bool lock_file(int fd, FileLock kind, Deadline deadline) {
  const short type = kind == FileLock::kExclusive ? F_WRLCK : F_RDLCK;
  auto pause = kFirstPause;
  while (!try_lock(fd, type, kTurnByte)) {
    if (deadline.passed()) return false;
    // The kernel's own wait for a lock has no end where the holder is stopped.
    std::this_thread::sleep_for(deadline.left(pause));
    pause = std::min(2 * pause, kLongestPause);
  }
  return true;
}

void unlock_file(int fd) noexcept {
  struct flock lock = lock_of(F_UNLCK, kTurnByte);
  fcntl(fd, F_OFD_SETLK, &lock);
}

void lock_mark(int fd, std::uint32_t number) {
  if (!try_lock(fd, F_WRLCK, kMarks + number)) throw_error("locking a byte of", fd, EBUSY);
}

bool is_mark_locked(int fd, std::uint32_t number) {
  struct flock lock = lock_of(F_WRLCK, kMarks + number);
  if (fcntl(fd, F_OFD_GETLK, &lock) != 0) throw_error("querying the locks of", fd, errno);
  return lock.l_type != F_UNLCK;
}

std::string read_from(int fd, std::uint64_t offset) {
  const std::uint64_t end = facts_of(fd).bytes;
  std::string bytes(end > offset ? end - offset : 0, '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno != EINTR) throw_error("reading", fd, errno);
    if (got == 0) break;
    if (got > 0) done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

void write_at(int fd, std::uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = pwrite(fd, bytes.data(), std::min(bytes.size(), kMostAtOnce), static_cast<off_t>(offset));
    RETINUE_CRASH_POINT();
    if (put < 0 && errno != EINTR) throw_error("writing", fd, errno);
    if (put <= 0) continue;
    bytes.remove_prefix(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
}

void truncate_file(int fd, std::uint64_t bytes) {
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) throw_error("truncating", fd, errno);
}

void remove_file(const std::string& path) {
  if (unlink(path.c_str()) != 0 && errno != ENOENT) throw SystemError(fmt::format("removing {}", path), errno);
}

FileWatch::FileWatch(const std::string& path) : notify_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  constexpr std::uint32_t kChanges = IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF;
  if (notify_ && inotify_add_watch(notify_.get(), path.c_str(), kChanges) < 0) notify_.reset();
}

void FileWatch::wait(Deadline deadline) {
  if (!notify_) return std::this_thread::sleep_for(deadline.left());
  if (!wait_ready(notify_.get(), POLLIN, deadline)) return;
  alignas(inotify_event) std::array<char, 4096> events;
  while (read(notify_.get(), events.data(), events.size()) > 0) continue;
}

}  // namespace retinue
