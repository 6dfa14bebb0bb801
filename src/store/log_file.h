#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "os/files/file_descriptor.h"
#include "os/files/shared_file.h"
#include "retinue/base/deadline.h"
#include "store/file_log.h"

namespace retinue {

/// A FileStore's file, and what this process has read of it.
///
/// Each turn opens the file anew: a lock of an opened file lives on in forks, and a network file system shows what
/// other hosts wrote to who opens a file later.
class LogFile {
 public:
  /// Makes the file if there is none; it is empty then. Errors: SystemError; UsageError if it can't be a store's.
  explicit LogFile(std::string path);

  const std::string& path() const { return path_; }

  /// Runs `body` with the lock held and all read that is in the file. Errors: as of a FileStore's calls.
  void look(Deadline deadline, const std::function<void(const LogState&)>& body);

  /// The same alone; `body` may write.
  class Turn {
   public:
    const LogState& state() const { return file_->state_; }
    int fd() const { return fd_; }
    /// For a file that has not begun. Errors: SystemError; the file is as before then.
    void begin(std::int64_t world_size, const std::string& job) const;
    /// For one that has. Errors: as above.
    void append(Record kind, std::int64_t number, std::vector<std::string> strings) const;
    void remove() const;

   private:
    friend class LogFile;
    Turn(LogFile* file, int fd) : file_(file), fd_(fd) {}
    void write(const std::string& records) const;
    LogFile* file_;
    int fd_;
  };
  void change(Deadline deadline, const std::function<void(const Turn&)>& body);

 private:
  void run(FileLock kind, const FileDescriptor& fd, Deadline deadline, const std::function<void()>& body);
  FileDescriptor open();
  void catch_up(int fd, FileLock kind);

  std::string path_;
  FileDescriptor kept_;  ///< While it is open, no other file can have this one's number.
  FileFacts facts_;
  std::mutex mutex_;  ///< Of all below, while the file's lock is held.
  LogState state_;
};

}  // namespace retinue
