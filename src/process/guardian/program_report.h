#pragma once

#include <sys/types.h>

#include <string>

#include "ipc/memory/process_slot.h"

namespace retinue {

/// The guardian's part in the failure of the program that made the job: the program cannot write its error file itself
/// when it crashes, so it says so, waits, and a helper of the guardian's writes the file.
class ProgramReport {
 public:
  /// In the program or a fork of it: takes the file's path from the environment as it is now.
  ProgramReport();

  /// The program's record is complete, and the program waits for `reported`.
  void begin(CrashRecord& record);

  bool owns(pid_t pid) const { return pid == helper_; }
  /// Its helper ended.
  void on_exit();

 private:
  std::string error_file_;
  CrashRecord* record_ = nullptr;
  pid_t helper_ = 0;
};

}  // namespace retinue
