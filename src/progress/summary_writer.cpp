#include "retinue/progress/summary_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "ipc/records/progress_record.h"
#include "progress/event_files.h"
#include "progress/folder.h"
#include "progress/histogram.h"
#include "progress/scalar_lines.h"
#include "progress/tags.h"
#include "retinue/base/error.h"
#include "retinue/os/detail/standard_error.h"

namespace retinue {
namespace {

constexpr const char* kScalarFile = "scalars.jsonl";

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// What a SummaryWriter that was moved from doesn't have.
template <typename Impl>
Impl& checked_writer(const std::unique_ptr<Impl>& impl) {
  if (impl == nullptr) throw UsageError("this SummaryWriter was moved from; use the one that it was moved to");
  return *impl;
}

/// As PyTorch names it.
std::string subfolder_of(std::string_view main_tag, std::string_view key) {
  std::string name = fmt::format("{}_{}", main_tag, key);
  std::ranges::replace(name, '/', '_');
  return name;
}

}  // namespace

class SummaryWriter::Impl {
 public:
  Impl(std::filesystem::path folder, SummaryWriterOptions options)
      : folder_(std::move(folder)),
        options_(std::move(options)),
        events_(folder_, options_.filename_suffix, first_time(), options_.purge_step.has_value()),
        lines_((folder_ / kScalarFile).string()) {
    if (options_.purge_step) lines_.add_purge(first_time());
    flush();
    tell_scalar_file(lines_.path());
  }

  const std::filesystem::path& folder() const { return folder_; }

  void add_scalar(std::string_view tag, double value, std::int64_t step) {
    check_tag("add_scalar", tag);
    const EventTime time{.wall_time = wall_time(), .step = step};
    add([&] {
      lines_.add(time, tag, value);
      events_.add(scalar_event(time, tag, static_cast<float>(value)));
    });
  }

  void add_scalars(std::string_view main_tag, const std::map<std::string, double>& values, std::int64_t step) {
    check_tag("add_scalars", main_tag);
    for (const auto& [key, value] : values) check_tag("add_scalars", key);
    const EventTime time{.wall_time = wall_time(), .step = step};
    add([&] {
      for (const auto& [key, value] : values) {
        // First: it fails if the key's file can't be made.
        events_.add(subfolder_of(main_tag, key), time, scalar_event(time, main_tag, static_cast<float>(value)));
        lines_.add(time, fmt::format("{}/{}", main_tag, key), value);
      }
    });
  }

  void add_event(const std::string& event) {
    add([&] { events_.add(event); });
  }

  void flush() {
    const std::lock_guard lock(mutex_);
    check_usable();
    write_all_files();
  }

  void close() {
    const std::lock_guard lock(mutex_);
    if (is_closed_ || getpid() != owner_) return;
    is_closed_ = true;
    write_all_files();
  }

 private:
  EventTime first_time() const { return {.wall_time = wall_time(), .step = options_.purge_step.value_or(0)}; }

  template <typename Add>
  void add(Add add_events) {
    const std::lock_guard lock(mutex_);
    check_usable();
    add_events();
    const auto waited = std::chrono::floor<std::chrono::seconds>(std::chrono::steady_clock::now() - written_);
    if (waited >= options_.flush_secs) return write_all_files();
    if (events_.pending_events() > options_.max_queue) write_files([this] { lines_.write_ended_steps(); });
  }

  void check_usable() const {
    if (is_closed_) throw UsageError("SummaryWriter: the writer was closed");
    if (getpid() != owner_)
      throw UsageError("SummaryWriter: this process was forked from the writer's; make a writer of its own in it");
  }

  void write_all_files() {
    written_ = std::chrono::steady_clock::now();
    write_files([this] { lines_.write(); });
  }

  /// Where one of the files can't be written, the others aren't tried: the next call may find space again.
  template <typename Write>
  void write_files(Write write_lines) {
    try {
      events_.write();
      write_lines();
    } catch (...) {
      events_.forget_pending();
      lines_.forget_pending();
      throw;
    }
  }

  std::filesystem::path folder_;
  SummaryWriterOptions options_;
  std::mutex mutex_;  ///< Guards all below.
  EventFiles events_;
  ScalarLines lines_;
  std::chrono::steady_clock::time_point written_;
  bool is_closed_ = false;
  const pid_t owner_ = getpid();
};

SummaryWriter::SummaryWriter(const std::filesystem::path& log_dir, SummaryWriterOptions options)
    : impl_(std::make_unique<Impl>(std::filesystem::absolute(log_dir.empty() ? default_log_folder() : log_dir),
                                   std::move(options))) {}

SummaryWriter::~SummaryWriter() {
  if (!impl_) return;
  try {
    impl_->close();
  } catch (const std::exception& error) {
    write_standard_error(fmt::format("retinue: {}\n", error.what()));
  }
}

SummaryWriter::SummaryWriter(SummaryWriter&&) noexcept = default;
SummaryWriter& SummaryWriter::operator=(SummaryWriter&& other) noexcept {
  SummaryWriter(std::move(other)).impl_.swap(impl_);  // The destructor closes what this one wrote so far.
  return *this;
}

void SummaryWriter::add_scalar(std::string_view tag, double value, std::int64_t global_step) {
  checked_writer(impl_).add_scalar(tag, value, global_step);
}

void SummaryWriter::add_scalars(std::string_view main_tag, const std::map<std::string, double>& values,
                                std::int64_t global_step) {
  checked_writer(impl_).add_scalars(main_tag, values, global_step);
}

void SummaryWriter::add_text(std::string_view tag, std::string_view text, std::int64_t global_step) {
  check_tag("add_text", tag);
  check_utf8("add_text", text);
  checked_writer(impl_).add_event(
      text_event({.wall_time = wall_time(), .step = global_step}, fmt::format("{}/text_summary", tag), text));
}

void SummaryWriter::add_histogram(std::string_view tag, std::span<const double> values, std::int64_t global_step) {
  check_tag("add_histogram", tag);
  const Histogram histogram = histogram_of(values);
  if (histogram.count == 0) return;
  checked_writer(impl_).add_event(histogram_event({.wall_time = wall_time(), .step = global_step}, tag, histogram));
}

void SummaryWriter::add_histogram(std::string_view tag, std::span<const float> values, std::int64_t global_step) {
  add_histogram(tag, std::vector<double>(values.begin(), values.end()), global_step);
}

void SummaryWriter::flush() {
  checked_writer(impl_).flush();
}

void SummaryWriter::close() {
  checked_writer(impl_).close();
}

const std::filesystem::path& SummaryWriter::log_dir() const {
  return checked_writer(impl_).folder();
}

}  // namespace retinue
