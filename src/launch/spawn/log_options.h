#pragma once

#include "process/logs/log_request.h"
#include "retinue/launch/options.h"

namespace retinue {

/// The log options of a start, checked and made true on the file system: each rank has its directory and empty files.
/// What was made is removed again with this object, unless the start succeeded and keep() was called.
class PreparedLogs {
 public:
  /// Errors: UsageError for a log_dir that is missing, no directory, not empty or not writable; for ranks beyond
  /// `nprocs`; for an unknown ${name} in line_prefix. SystemError when files cannot be made.
  PreparedLogs(const StartOptions& options, int nprocs);
  ~PreparedLogs();
  PreparedLogs(const PreparedLogs&) = delete;
  PreparedLogs& operator=(const PreparedLogs&) = delete;

  const LogRequest& request() const { return request_; }
  /// The ranks are about to start and own the files: says where they are, if the caller could not know.
  void keep();

 private:
  void choose_directory(const StartOptions& options);
  void take_copy_filters(const char* option, const StartOptions& options, std::uint32_t bit);
  void make_files();
  void remove_files() noexcept;

  // What was made here, and so may be removed: another start may use the same folder.
  int folders_made_ = 0;
  std::uint32_t copies_made_ = 0;

  LogRequest request_;
  bool is_kept_ = false;
};

/// Says on standard error that the disk under the logs is full, if it is: ranks seldom notice that a write failed.
void warn_if_full(const LogRequest& logs);

}  // namespace retinue
