#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace retinue {

struct SummaryWriterOptions {
  /// The first step of a resumed run. What earlier runs logged from this step on is no longer shown; it stays in their
  /// files.
  std::optional<std::int64_t> purge_step = std::nullopt;
  /// So many events wait in memory; the next one writes all of them.
  std::size_t max_queue = 10;
  /// Events are written at the latest by the first one after this time.
  std::chrono::seconds flush_secs{120};
  std::string filename_suffix = {};  ///< Of the event file.
};

/// Logs a training for TensorBoard, and as JSON lines.
///
/// A new event file `events.out.tfevents.*` is made in `log_dir`. The file `scalars.jsonl` beside it has one JSON
/// object for each step: {"step":3,"wall_time":1764380942.5,"scalars":{"loss":0.25}}. JSON has no NaN and no infinity:
/// they are the strings "NaN", "Infinity" and "-Infinity". A resumed run makes another event file and appends to the
/// JSON lines. The report of a run (`retinue run --report`) shows the scalars as curves.
///
/// What was written survives the end of the process, also by SIGKILL. Use one writer for each folder: usually rank 0's.
/// Tags and texts are UTF-8. Tags are not empty and have no control characters, such as line breaks.
///
/// Threads: any. Errors: UsageError for a bad tag, and in a process that was forked from the writer's; SystemError,
/// with the file's name, if a file can't be written. After an error: the events that were to be written are lost, files
/// have whole events only, and the writer can be used on.
/// Cost: a microsecond for a scalar, with its share of the writes to the file.
class SummaryWriter {
 public:
  /// Makes the folder if it is missing. An empty `log_dir` is runs/DATE_TIME_HOST, as in PyTorch.
  explicit SummaryWriter(const std::filesystem::path& log_dir = {}, SummaryWriterOptions options = {});
  /// Calls close(), and prints an error on standard error.
  ~SummaryWriter();
  SummaryWriter(SummaryWriter&&) noexcept;
  /// Closes what this one wrote so far, as the destructor does.
  SummaryWriter& operator=(SummaryWriter&&) noexcept;

  /// Logs a value. TensorBoard gets it as a 32-bit float, as PyTorch writes it; the JSON lines have all its digits. In
  /// these, a tag's last value in a step counts.
  void add_scalar(std::string_view tag, double value, std::int64_t global_step = 0);
  /// Logs values that TensorBoard shows in one chart, `main_tag`. As in PyTorch, each has an event file of its own, in
  /// a folder `log_dir`/MAIN_TAG_KEY. In the JSON lines their names are "main_tag/key".
  void add_scalars(std::string_view main_tag, const std::map<std::string, double>& values,
                   std::int64_t global_step = 0);
  /// Logs a text for TensorBoard alone, which shows it as Markdown.
  void add_text(std::string_view tag, std::string_view text, std::int64_t global_step = 0);
  /// Logs the distribution of values for TensorBoard alone, in the buckets that PyTorch uses by default. Values that
  /// are NaN or infinite are left out; nothing is logged without others.
  void add_histogram(std::string_view tag, std::span<const double> values, std::int64_t global_step = 0);
  void add_histogram(std::string_view tag, std::span<const float> values, std::int64_t global_step = 0);

  /// Writes all that was logged. The kernel has it then; it is not waited for until it is on the disk.
  void flush();
  /// Calls flush() and ends the writer: other calls throw UsageError then.
  void close();

  const std::filesystem::path& log_dir() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace retinue
