#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "retinue/process/failure.h"

/// The file in which a process of PyTorch's elastic tells how it failed: C++ ranks have one written, and what a Python
/// rank wrote is read. Schema:
/// {"message": {"message": "Type: text", "extraInfo": {"py_callstack": "...", "timestamp": "seconds"}, "errorCode": 1}}
namespace retinue {

/// The environment variable that names a process's error file.
constexpr const char* kErrorFileVariable = "TORCHELASTIC_ERROR_FILE";

struct ErrorReport {
  std::string type;  ///< Empty when the message names none.
  std::string message;
  std::string stack;
  std::optional<std::int64_t> timestamp_s;  ///< CLOCK_REALTIME.
  std::optional<int> error_code;
};

/// What was read, or why it could not be.
struct ReadErrorReport {
  ErrorReport report;
  std::string problem;  ///< Empty: none.
};

std::string error_file_text(const ErrorReport& report);

/// Understands also {"message": "text", "timestamp": 10}, and leaves out what it does not know.
ReadErrorReport parse_error_file(std::string_view text);
/// Never waits, whatever `path` is.
ReadErrorReport read_error_file(const std::string& path);

/// Whole or not at all, so that a reader finds no half of it. Errors: SystemError.
void write_error_file(const std::string& path, const ErrorReport& report);

/// What a failed rank's error file says.
ErrorReport error_report_of(const RankOutcome& outcome);

/// Which state a file is in, to see later whether somebody wrote it.
struct FileStamp {
  std::uint64_t inode = 0;  ///< 0: there is no file.
  std::uint64_t bytes = 0;
  std::int64_t changed_ns = 0;  ///< CLOCK_REALTIME, as the file system keeps it.

  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};
FileStamp stamp_of_file(const std::string& path);

}  // namespace retinue
