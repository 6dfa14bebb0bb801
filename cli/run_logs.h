#pragma once

#include <string>

namespace retinue {

/// The folders of a run's logs: DIR/<run id>/attempt_<n>. Where DIR/<run id> exists already, from an earlier run, this
/// run's is DIR/<run id>_XXXXXX: nothing is ever overwritten.
class RunLogs {
 public:
  /// Without a `log_dir` there are none.
  RunLogs(std::string log_dir, std::string run_id) : log_dir_(std::move(log_dir)), run_id_(std::move(run_id)) {}

  /// Makes an attempt's folder and returns its path; empty where there are none. Errors: UsageError.
  std::string make_attempt(int number);

  /// The run's folder; empty until the first attempt's was made.
  const std::string& run_folder() const { return run_folder_; }

 private:
  std::string log_dir_;
  std::string run_id_;
  std::string run_folder_;
};

}  // namespace retinue
