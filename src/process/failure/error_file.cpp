#include "process/failure/error_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "os/files/descriptor_calls.h"
#include "os/files/file_descriptor.h"
#include "os/process/signal_names.h"
#include "os/sync/clock.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxFileBytes = std::size_t{4} << 20;

std::string head_of(const ErrorReport& report) {
  return report.type.empty() ? report.message : report.type + ": " + report.message;
}

/// "ValueError: text" apart; a message that begins with no name of a type stays whole.
void set_head(const std::string& head, ErrorReport& report) {
  const auto is_of_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.' || c == ':'; };
  const auto end = head.find(": ");
  const auto of_name = std::find_if_not(head.begin(), head.end(), is_of_name) - head.begin();
  const bool has_type = end != std::string::npos && end != 0 && static_cast<std::size_t>(of_name) == end + 1 &&
                        std::isdigit(static_cast<unsigned char>(head[0])) == 0;
  report.type = has_type ? head.substr(0, end) : "";
  report.message = has_type ? head.substr(end + 2) : head;
}

const Json* find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string json_text(const Json* value) {
  if (value == nullptr) return {};
  return value->is_string() ? value->get<std::string>() : value->dump();
}

/// 10 as well as "10".
std::optional<std::int64_t> number_of(const Json* value) {
  if (value == nullptr) return std::nullopt;
  if (value->is_number_float()) {
    constexpr double kMost = 9e18;  // What a double may be to become an integer.
    const auto number = value->get<double>();
    return number > -kMost && number < kMost ? std::optional(static_cast<std::int64_t>(number)) : std::nullopt;
  }
  if (value->is_number()) return value->get<std::int64_t>();
  const std::string text = json_text(value);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

/// For a moment behind us on CLOCK_MONOTONIC.
std::int64_t realtime_seconds_of(std::chrono::nanoseconds monotonic) {
  const std::chrono::nanoseconds now(monotonic_ns());
  const bool is_behind = monotonic > std::chrono::nanoseconds(0) && monotonic < now;  // Else nobody knows.
  const auto ago = is_behind ? now - monotonic : std::chrono::nanoseconds(0);
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch() - ago)
      .count();
}

/// Behind symbolic links, which stay.
std::string real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr), &std::free);
  return real ? real.get() : path;
}

}  // namespace

std::string error_file_text(const ErrorReport& report) {
  const std::string head = head_of(report);
  // A reader that shows a traceback shows nothing else: as Python's, it holds the message too.
  Json extra = {{"py_callstack", report.stack.empty() ? head : head + "\n" + report.stack}};
  extra["timestamp"] = std::to_string(report.timestamp_s.value_or(std::time(nullptr)));
  Json message = {{"message", head}, {"extraInfo", std::move(extra)}};
  if (report.error_code) message["errorCode"] = *report.error_code;
  return Json{{"message", std::move(message)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ReadErrorReport parse_error_file(std::string_view text) {
  // What is nested deeper is written by nobody, and would take more stack to show than there is.
  constexpr int kMostNested = 100;
  bool is_too_deep = false;
  const auto keep = [&](int depth, Json::parse_event_t, Json&) {
    is_too_deep |= depth > kMostNested;
    return !is_too_deep;
  };
  const Json file = Json::parse(text.begin(), text.end(), keep, false);
  if (is_too_deep) return {{}, "is nested too deeply"};
  if (file.is_discarded()) return {{}, "is not valid JSON, or is incomplete"};
  const Json* const outer = find(file, "message");
  if (outer == nullptr) return {{}, "has no \"message\""};
  const Json* const inner = find(*outer, "message");
  if (outer->is_object() && inner == nullptr) return {{}, "has no \"message\" in its \"message\""};
  ErrorReport report;
  set_head(json_text(inner != nullptr ? inner : outer), report);
  const Json* const extra = find(*outer, "extraInfo");
  if (extra != nullptr) report.stack = json_text(find(*extra, "py_callstack"));
  const std::string head = head_of(report) + "\n";
  if (report.stack.starts_with(head)) report.stack.erase(0, head.size());  // As we write it.
  report.timestamp_s = number_of(extra != nullptr ? find(*extra, "timestamp") : find(file, "timestamp"));
  if (const auto code = number_of(find(*outer, "errorCode"))) report.error_code = static_cast<int>(*code);
  return {std::move(report), {}};
}

ReadErrorReport read_error_file(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file) return {{}, fmt::format("cannot be opened: {}", strerrordesc_np(errno))};
  struct stat status {};
  if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {{}, "is not a regular file"};
  std::string text(kMaxFileBytes + 1, '\0');
  std::size_t used = 0;
  while (used < text.size()) {
    const ssize_t bytes = read(file.get(), text.data() + used, text.size() - used);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return {{}, fmt::format("cannot be read: {}", strerrordesc_np(errno))};
    if (bytes == 0) break;
    used += static_cast<std::size_t>(bytes);
  }
  if (used > kMaxFileBytes) return {{}, "is larger than 4 MiB"};
  if (used == 0) return {{}, "is empty"};
  return parse_error_file(std::string_view(text).substr(0, used));
}

void write_error_file(const std::string& path, const ErrorReport& report) {
  const std::string text = error_file_text(report);
  const std::string target = real_path(path);
  struct stat status {};
  if (stat(target.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    // A device or a pipe, which must not be replaced by a file.
    const FileDescriptor device(open(target.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    if (!device) throw SystemError("opening the error file " + path, errno);
    if (!write_all(device.get(), text)) throw SystemError("writing the error file " + path, errno);
    return;
  }
  const std::string temporary = fmt::format("{}.{}.tmp", target, getpid());
  try {
    const FileDescriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (!file) throw SystemError("creating the error file " + path, errno);
    if (!write_all(file.get(), text)) throw SystemError("writing the error file " + path, errno);
    if (rename(temporary.c_str(), target.c_str()) != 0) throw SystemError("renaming to the error file " + path, errno);
  } catch (const SystemError&) {
    unlink(temporary.c_str());
    throw;
  }
}

ErrorReport error_report_of(const RankOutcome& outcome) {
  ErrorReport report;
  report.type = outcome.type;
  report.message = outcome.message;
  if (report.type.empty() && outcome.signal != 0) report.type = signal_name(outcome.signal);
  report.stack = outcome.stack;
  report.timestamp_s = realtime_seconds_of(outcome.ended);
  const bool is_killed = outcome.end == RankEnd::kSignaled || outcome.end == RankEnd::kStopped;
  const int code = is_killed ? -outcome.signal : outcome.exit_code;
  if (code != 0) report.error_code = code;
  return report;
}

FileStamp stamp_of_file(const std::string& path) {
  struct stat status {};
  if (path.empty() || stat(path.c_str(), &status) != 0) return {};
  return {status.st_ino, static_cast<std::uint64_t>(status.st_size),
          static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec};
}

}  // namespace retinue
