#include "process/logs/tee.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "os/sync/clock.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;
/// While lines come, files are read this often: more lines per read and per wake, and nobody sees the difference.
constexpr auto kCoalesceTime = std::chrono::milliseconds(2);
constexpr auto kLookTime = std::chrono::milliseconds(100);
/// After the guardian's death its ranks are being killed, and a last write may be under way.
constexpr auto kSettleTime = std::chrono::milliseconds(50);
constexpr auto kPatience = std::chrono::seconds(5);
constexpr auto kHurriedPatience = std::chrono::seconds(2);

std::string coloured(const std::string& prefix, std::size_t rank) {
  constexpr std::array kColours = {36, 33, 32, 35, 34, 96, 93, 92, 95, 94};  // Not red, which looks like an error.
  return fmt::format("\033[{}m{}\033[0m", kColours[rank % kColours.size()], prefix);
}

}  // namespace

Tee::Tee(const LogRequest& logs, const TeeBoard& board, Descriptors descriptors)
    : board_(board),
      descriptors_(descriptors),
      output_(descriptors.standard_output, board.written_bytes()),
      error_(descriptors.standard_error, board.written_bytes()),
      changes_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
      last_progress_(Clock::now()),
      scratch_(kReadBytes, '\0') {
  add_streams(logs, kStdoutBit);
  add_streams(logs, kStderrBit);
}

void Tee::add_streams(const LogRequest& logs, std::uint32_t bit) {
  Console& console = bit == kStdoutBit ? output_ : error_;
  Console* const copies = add_copy_file(logs.copy_file_of(bit));
  std::size_t stream = bit == kStdoutBit ? 0 : 2 * logs.ranks.size();
  for (std::size_t rank = 0; rank < logs.ranks.size(); ++rank, stream += 2) {
    if ((logs.ranks[rank].shown & bit) == 0) continue;
    const std::string path = logs.file_of(static_cast<int>(rank), bit);
    const std::string& prefix = logs.ranks[rank].prefix;
    files_.emplace_back(path, console, board_.shown_bytes(stream),
                        LineSplitter((logs.coloured & bit) != 0 ? coloured(prefix, rank) : prefix, logs.filters));
    if (copies != nullptr)
      files_.emplace_back(path, *copies, board_.shown_bytes(stream + 1), LineSplitter(prefix, logs.copy_filters(bit)));
  }
}

Console* Tee::add_copy_file(const std::string& path) {
  if (path.empty()) return nullptr;
  FileDescriptor file(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!file) {
    error_.add_line(
        fmt::format("retinue: cannot open {}: {}; no lines are copied to it", path, strerrordesc_np(errno)));
    return nullptr;
  }
  const int fd = file.get();
  return &copies_.emplace_back(CopyFile{path, std::move(file), Console(fd, board_.written_bytes())}).console;
}

TeeEnd Tee::run() {
  activate_all();
  obey();
  for (;;) {
    const bool has_more = read_active();
    show_pending();
    if (is_ending_ && is_shown()) {
      if (is_settled_) break;
      poll(nullptr, 0, static_cast<int>(kSettleTime / std::chrono::milliseconds(1)));
      is_settled_ = true;
      for (TeeFile& file : files_) file.limit_to_size();
      activate_all();
      continue;
    }
    if (is_stuck()) return TeeEnd::kGaveUp;
    wait(has_more);
  }
  for (TeeFile& file : files_)
    if (!file.console().is_gone()) file.finish();
  for (show_pending(); !is_shown() && !is_stuck(); show_pending()) wait(false);
  return is_shown() ? TeeEnd::kDone : TeeEnd::kGaveUp;
}

bool Tee::is_stuck() const {
  const bool is_hurried = board_.order().load(std::memory_order_acquire) != TeeBoard::Order::kFinish;
  return is_ending_ && Clock::now() - last_progress_ > (is_hurried ? kHurriedPatience : kPatience);
}

void Tee::activate(TeeFile& file) {
  if (file.is_active) return;
  file.is_active = true;
  active_.push_back(&file);
}

void Tee::activate_all() {
  for (TeeFile& file : files_) activate(file);
}

bool Tee::read_active() {
  bool has_more = false;
  std::vector<TeeFile*> still_active;
  for (TeeFile* file : active_) {
    file->is_active = read_file(*file, has_more);
    if (file->is_active) still_active.push_back(file);
  }
  active_ = std::move(still_active);
  return has_more;
}

bool Tee::read_file(TeeFile& file, bool& has_more) {
  if (file.console().is_gone()) return false;
  if (!file.console().has_room()) return has_more = true;
  TeeFile::Found found = read_with_few_descriptors(file);
  if (found == TeeFile::Found::kNothing) {
    if (is_ending_) return false;
    if (file.watch >= 0 || !watch(file)) return false;
    found = read_with_few_descriptors(file);  // What came before the watch was there.
  }
  has_more = has_more || found == TeeFile::Found::kMore;
  return found != TeeFile::Found::kNothing;
}

/// A limit below the number of files makes them take turns.
TeeFile::Found Tee::read_with_few_descriptors(TeeFile& file) {
  try {
    return file.read_new(scratch_);
  } catch (const SystemError& error) {
    if (error.errno_value() != EMFILE && error.errno_value() != ENFILE) throw;
    for (TeeFile& other : files_) other.close();
    return file.read_new(scratch_);
  }
}

/// A watch that ends with the first change: writers don't fill a queue while the forwarder reads anyway.
bool Tee::watch(TeeFile& file) {
  file.watch = changes_ ? inotify_add_watch(changes_.get(), file.path().c_str(), IN_MODIFY | IN_ONESHOT) : -1;
  if (file.watch >= 0) {
    watched_.emplace(file.watch, &file);
    return true;
  }
  if (!is_timed_)
    error_.add_line(fmt::format(
        "retinue: {} cannot be watched for new lines ({}): the files are read ten times a second instead; see "
        "fs.inotify.max_user_instances and max_user_watches",
        file.path(), strerrordesc_np(errno)));
  is_timed_ = true;
  return false;
}

void Tee::take_changes() {
  alignas(inotify_event) char buffer[4096];
  for (ssize_t bytes = 0; (bytes = read(changes_.get(), buffer, sizeof buffer)) > 0;) {
    for (const char* at = buffer; at < buffer + bytes;) {
      const auto& event = *reinterpret_cast<const inotify_event*>(at);
      at += sizeof event + event.len;
      if ((event.mask & IN_Q_OVERFLOW) != 0) activate_all();
      const auto [first, last] = watched_.equal_range(event.wd);
      for (auto found = first; found != last; ++found) {
        activate(*found->second);
        if ((event.mask & IN_IGNORED) != 0) found->second->watch = -1;
      }
      if ((event.mask & IN_IGNORED) != 0) watched_.erase(first, last);
    }
  }
}

void Tee::obey() {
  if (is_ending_ || board_.order().load(std::memory_order_acquire) == TeeBoard::Order::kGoOn) return;
  is_ending_ = is_settled_ = true;
  for (TeeFile& file : files_) file.limit_to_size();
  last_progress_ = Clock::now();
  activate_all();
}

void Tee::show_pending() {
  const bool had_output = !output_.is_gone();
  const bool had_error = !error_.is_gone();
  const bool output_took = output_.flush();
  const bool error_took = error_.flush();
  for (CopyFile& copy : copies_) {
    const bool was_there = !copy.console.is_gone();
    copy.console.flush();
    if (was_there && copy.console.is_gone()) report_console(copy.console, copy.path);
  }
  if (output_took || error_took || !is_any_pending()) last_progress_ = Clock::now();
  if (had_error && error_.is_gone()) report_console(error_, "standard error");
  if (had_output && output_.is_gone()) report_console(output_, "standard output");
}

bool Tee::is_any_pending() const {
  return output_.is_pending() || error_.is_pending() ||
         std::any_of(copies_.begin(), copies_.end(), [](const CopyFile& copy) { return copy.console.is_pending(); });
}

void Tee::report_console(const Console& console, const std::string& name) {
  if (console.error() == 0) return;
  Console& other = &console == &error_ ? output_ : error_;
  other.add_line(fmt::format("retinue: {} accepts no more output of the ranks: {}; the log files still get it", name,
                             strerrordesc_np(console.error())));
}

bool Tee::can_read_some() const {
  return std::any_of(active_.begin(), active_.end(), [](const TeeFile* file) { return file->console().has_room(); });
}

std::optional<std::chrono::nanoseconds> Tee::longest_wait(bool has_more) const {
  const bool can_read = can_read_some();
  if (can_read && (has_more || is_ending_)) return std::chrono::nanoseconds(0);
  if (can_read) return kCoalesceTime;
  if (is_timed_ || is_ending_) return kLookTime;
  return std::nullopt;
}

void Tee::wait(bool has_more) {
  const auto longest = longest_wait(has_more);
  const bool is_coalescing = longest && !is_ending_ && can_read_some();
  // A descriptor of -1 is passed over.
  pollfd entries[] = {{is_ending_ ? -1 : descriptors_.wake, POLLIN, 0},
                      {is_ending_ ? -1 : descriptors_.guardian_pidfd, POLLIN, 0},
                      {is_ending_ || is_coalescing ? -1 : changes_.get(), POLLIN, 0},
                      {output_.is_pending() ? output_.fd() : -1, POLLOUT, 0},
                      {error_.is_pending() ? error_.fd() : -1, POLLOUT, 0}};
  const timespec time = to_timespec(longest.value_or(std::chrono::nanoseconds(0)));
  ppoll(entries, std::size(entries), longest ? &time : nullptr, nullptr);
  if (!is_ending_ && (entries[1].revents != 0 || descriptors_.guardian_pidfd < 0)) {
    is_ending_ = true;
    last_progress_ = Clock::now();
    activate_all();
  }
  if (entries[0].revents != 0) obey();
  if (entries[2].revents != 0) take_changes();
  if (is_timed_ && !is_ending_) activate_all();
}

}  // namespace retinue
