#include "progress/event_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <utility>

#include "progress/folder.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// As PyTorch names it: TensorBoard reads what has "tfevents" in its name.
std::string name_of_event_file(double wall_time, const std::string& suffix) {
  static std::atomic<std::uint64_t> count{0};
  return fmt::format("events.out.tfevents.{:010d}.{}.{}.{}{}", static_cast<std::int64_t>(wall_time), host_name(),
                     getpid(), count.fetch_add(1, std::memory_order_relaxed), suffix);
}

}  // namespace

EventFiles::EventFiles(std::filesystem::path folder, std::string suffix, const EventTime& first, bool purges)
    : folder_(std::move(folder)),
      suffix_(std::move(suffix)),
      first_(first),
      purges_(purges),
      own_(make_file(folder_, first_)) {}

RecordFile EventFiles::make_file(const std::filesystem::path& folder, const EventTime& first) const {
  make_log_folder(folder);
  RecordFile file = [&] {
    for (;;) {
      try {
        return RecordFile::make(folder / name_of_event_file(first.wall_time, suffix_));
      } catch (const SystemError& error) {  // Left by a process of another container, with this one's pid.
        if (error.errno_value() != EEXIST) throw;
      }
    }
  }();
  file.add(framed(version_event(first)));
  if (purges_) file.add(framed(session_start_event({.wall_time = first.wall_time, .step = first_.step})));
  return file;
}

void EventFiles::add(const std::string& subfolder, const EventTime& time, std::string_view event) {
  auto found = others_.find(subfolder);
  if (found == others_.end())
    found =
        others_.emplace(subfolder, make_file(folder_ / subfolder, {.wall_time = time.wall_time, .step = first_.step}))
            .first;
  found->second.add(framed(event));
  ++pending_in_others_;
}

void EventFiles::write() {
  std::exception_ptr error;
  const auto write_file = [&](RecordFile& file) {
    try {
      file.write();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  };
  write_file(own_);
  for (auto& [subfolder, file] : others_) write_file(file);
  pending_in_others_ = 0;
  if (error) std::rethrow_exception(error);
}

void EventFiles::forget_pending() {
  own_.forget_pending();
  for (auto& [subfolder, file] : others_) file.forget_pending();
  pending_in_others_ = 0;
}

}  // namespace retinue
