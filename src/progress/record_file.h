#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "os/files/file_descriptor.h"

namespace retinue {

/// A file to which whole records are appended. Records wait in memory until they are written.
///
/// Who kills the process leaves a file with whole records, after which a part of one may follow.
/// Threads: one at a time.
class RecordFile {
 public:
  /// Makes a new file. Errors: SystemError, with EEXIST where there is one.
  static RecordFile make(const std::string& path);
  /// The same, or goes on in the one that is there: behind a new line, if its last line has no end.
  static RecordFile append_lines(const std::string& path);

  const std::string& path() const { return path_; }
  void add(std::string_view record) {
    pending_ += record;
    ends_.push_back(pending_.size());
  }
  std::size_t pending_records() const { return ends_.size(); }
  void forget_pending();

  /// Writes what is pending. Errors: SystemError. Then what is pending is given up, and of a record of which a part was
  /// written nothing is left in the file.
  void write();

 private:
  RecordFile(std::string path, FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  FileDescriptor file_;
  std::string pending_;
  std::vector<std::size_t> ends_;  ///< Of the records in `pending_`.
};

}  // namespace retinue
