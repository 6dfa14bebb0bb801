#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "progress/event.h"
#include "progress/record_file.h"

namespace retinue {

/// The event files of a SummaryWriter: its own, and one in each folder of add_scalars().
///
/// Threads: one at a time.
class EventFiles {
 public:
  /// `first`: of the run; `purges`: what earlier files have from its step on is replaced.
  EventFiles(std::filesystem::path folder, std::string suffix, const EventTime& first, bool purges);

  /// Errors: SystemError if a file that is new can't be made.
  void add(std::string_view event) { own_.add(framed(event)); }
  void add(const std::string& subfolder, const EventTime& time, std::string_view event);
  std::size_t pending_events() const { return own_.pending_records() + pending_in_others_; }
  /// Errors: as RecordFile::write(), the first of them.
  void write();
  void forget_pending();

 private:
  RecordFile make_file(const std::filesystem::path& folder, const EventTime& first) const;

  std::filesystem::path folder_;
  std::string suffix_;
  EventTime first_;
  bool purges_;
  RecordFile own_;
  std::map<std::string, RecordFile> others_;
  std::size_t pending_in_others_ = 0;
};

}  // namespace retinue
