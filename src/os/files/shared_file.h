#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "os/files/file_descriptor.h"
#include "retinue/base/deadline.h"

/// A file that processes, maybe of several hosts, change in turns. Its locks belong to the opened file, so they exclude
/// threads of one process as well, and the kernel drops them when their holder dies.
namespace retinue {

/// Makes the file if there is none, for this user only. Errors: SystemError.
FileDescriptor make_shared_file(const std::string& path);
/// nullopt if there is none. Errors: SystemError.
std::optional<FileDescriptor> open_shared_file(const std::string& path);

struct FileFacts {
  dev_t device = 0;
  ino_t inode = 0;
  std::uint64_t bytes = 0;
  bool is_regular = false;
  bool is_removed = false;  ///< No name leads to it any more.

  bool is_same(const FileFacts& other) const { return device == other.device && inode == other.inode; }
};
/// Errors: SystemError.
FileFacts facts_of(int fd);

enum class FileLock : std::uint8_t { kShared, kExclusive };
/// The lock by which turns are taken. Blocking: while others have theirs. False when the deadline passed.
/// Errors: SystemError, as where the file system has no locks.
bool lock_file(int fd, FileLock kind, Deadline deadline);
void unlock_file(int fd) noexcept;

/// Locks the mark of this number until the file, as it was opened here, is closed by all who have it.
/// Errors: SystemError.
void lock_mark(int fd, std::uint32_t number);
/// Whether some other opened file holds it. Errors: SystemError.
bool is_mark_locked(int fd, std::uint32_t number);

/// All from `offset` on. Errors: SystemError.
std::string read_from(int fd, std::uint64_t offset);
/// Errors: SystemError; a part may be written then.
void write_at(int fd, std::uint64_t offset, std::string_view bytes);
void truncate_file(int fd, std::uint64_t bytes);
void remove_file(const std::string& path);

/// Notices changes of a file that processes of this host make; where inotify isn't to be had, as when the user has too
/// many, none.
class FileWatch {
 public:
  explicit FileWatch(const std::string& path);

  /// Blocking: until a change, which may be one since the last call, at most to the deadline.
  void wait(Deadline deadline);

 private:
  FileDescriptor notify_;
};

}  // namespace retinue
