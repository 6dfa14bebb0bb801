#pragma once

#include <sys/types.h>

namespace retinue::bench {

/// A process that does nothing with this job and never sleeps, on the last CPU that this program may use, until this
/// ends. Errors: std::system_error.
class BusyProgram {
 public:
  BusyProgram();
  ~BusyProgram();
  BusyProgram(const BusyProgram&) = delete;
  BusyProgram& operator=(const BusyProgram&) = delete;

 private:
  pid_t pid_;
};

}  // namespace retinue::bench
