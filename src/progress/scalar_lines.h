#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "progress/event.h"
#include "progress/record_file.h"

namespace retinue {

/// A file of JSON lines: one object for each step.
///
/// Threads: one at a time.
class ScalarLines {
 public:
  explicit ScalarLines(const std::string& path) : file_(RecordFile::append_lines(path)) {}

  const std::string& path() const { return file_.path(); }
  void add(const EventTime& time, std::string_view tag, double value);
  /// What is above has steps of an earlier run, which those from this step on replace.
  void add_purge(const EventTime& time);
  /// Writes the lines of all steps but the one that may still get scalars. Errors: as RecordFile::write().
  void write_ended_steps() { file_.write(); }
  void write();
  void forget_pending();

 private:
  void end_step();

  RecordFile file_;
  EventTime time_;
  std::vector<std::pair<std::string, double>> scalars_;  ///< Of that step.
};

}  // namespace retinue
