#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "os/files/file_descriptor.h"
#include "process/logs/console.h"
#include "process/logs/line_splitter.h"

namespace retinue {

/// One stream's file on its way to a console.
class TeeFile {
 public:
  /// Continues after `shown` bytes and keeps that up to date.
  TeeFile(std::string path, Console& console, std::atomic<std::uint64_t>& shown, LineSplitter splitter);

  const std::string& path() const { return path_; }
  Console& console() const { return *console_; }

  enum class Found { kNothing, kSome, kMore };
  /// Reads what is new, but no more than fits into `scratch`, and gives whole lines to the console.
  /// Errors: SystemError when the file cannot be opened or read.
  Found read_new(std::string& scratch);
  /// Reads no further than the file goes now: who writes on when all ranks have ended must not keep the forwarder for
  /// ever.
  void limit_to_size();
  /// Gives the last line to the console if it has no end.
  void finish();
  /// Gives the descriptor back; the next read opens the file again.
  void close() { file_.reset(); }

  int watch = -1;          ///< The forwarder's: number of the inotify watch that waits for a change; -1 when none does.
  bool is_active = false;  ///< The forwarder's: whether it is to be read.

 private:
  bool restart_if_truncated();

  std::string path_;
  Console* console_;
  std::atomic<std::uint64_t>* shown_;
  LineSplitter splitter_;
  FileDescriptor file_;
  std::uint64_t first_;  ///< Where the splitter's first byte stands in the file.
  std::uint64_t read_;   ///< Up to here the file was read.
  std::uint64_t limit_ = ~std::uint64_t{0};
};

}  // namespace retinue
