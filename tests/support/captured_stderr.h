#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "os/files/file_descriptor.h"
#include "retinue/base/error.h"

namespace retinue::test {

/// What processes of a test write to standard error, in a file without a name that they share.
class CapturedStderr {
 public:
  CapturedStderr() : file_(memfd_create("stderr of a test", 0)) {
    if (!file_) throw SystemError("making a file for standard error", errno);
  }

  /// From here on all that this process, and its forks, write goes there.
  void begin() const {
    if (dup2(file_.get(), STDERR_FILENO) < 0) throw SystemError("redirecting standard error", errno);
  }

  /// Forgets what was written so far.
  void clear() const {
    if (ftruncate(file_.get(), 0) != 0 || lseek(file_.get(), 0, SEEK_SET) != 0)
      throw SystemError("emptying a file for standard error", errno);
  }

  std::string text() const {
    std::string all;
    char part[4096];
    for (ssize_t got = 0; (got = pread(file_.get(), part, sizeof part, static_cast<off_t>(all.size()))) > 0;)
      all.append(part, static_cast<std::size_t>(got));
    return all;
  }

 private:
  FileDescriptor file_;
};

}  // namespace retinue::test
