#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "os/file_descriptor.h"
#include "os/shared_file.h"
#include "retinue/base/deadline.h"
#include "store/file_log.h"

namespace retinue {

/// A FileStore's file, and what this process has read of it.
///
/// Each turn opens the file anew: a lock of an opened file lives on in forks, and a network file system shows what
/// other hosts wrote to who opens a file later.
class LogFile {
 public:
  /// Errors: SystemError; UsageError if it is no store's; TimeoutError.
  LogFile(std::string path, std::int64_t world_size, const std::string& job, Deadline deadline);

  const std::string& path() const { return path_; }

  /// Runs `body` with the lock held and all read that is in the file. Errors: as of a FileStore's calls.
  void look(Deadline deadline, const std::function<void(const LogState&)>& body);

  /// The same alone; `body` may write.
  class Turn {
   public:
    const LogState& state() const { return file_->state_; }
    int fd() const { return fd_; }
    /// Errors: SystemError; the file is as before then.
    void append(Record kind, std::int64_t number, std::vector<std::string> strings) const;
    void remove() const;

   private:
    friend class LogFile;
    Turn(LogFile* file, int fd) : file_(file), fd_(fd) {}
    LogFile* file_;
    int fd_;
  };
  void change(Deadline deadline, const std::function<void(const Turn&)>& body);

 private:
  void run(FileLock kind, const FileDescriptor& fd, Deadline deadline, const std::function<void()>& body);
  FileDescriptor open();
  void catch_up(int fd, FileLock kind);

  std::string path_;
  FileFacts facts_;
  FileDescriptor kept_;  ///< While it is open, no other file can have this one's number.
  std::mutex mutex_;     ///< Of all below, while the file's lock is held.
  LogState state_;
};

}  // namespace retinue
