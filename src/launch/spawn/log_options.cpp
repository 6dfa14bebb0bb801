#include "launch/spawn/log_options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "os/files/environment.h"
#include "os/files/file_descriptor.h"
#include "retinue/base/error.h"
#include "retinue/os/detail/standard_error.h"

namespace retinue {
namespace {

void check_rank(const char* option, int rank, int nprocs) {
  if (rank < 0 || rank >= nprocs)
    throw UsageError(
        fmt::format("{} names rank {}, but the local ranks of this start are 0..{}", option, rank, nprocs - 1));
}

void check_ranks(const StartOptions& options, int nprocs) {
  for (const auto& [option, streams] : {std::pair("redirects", &options.redirects), std::pair("tee", &options.tee)}) {
    if (!streams->names_ranks()) continue;
    check_rank(option, streams->smallest_rank(), nprocs);
    check_rank(option, streams->largest_rank(), nprocs);
  }
  for (const int rank : options.console_ranks) check_rank("console_ranks", rank, nprocs);
}

[[noreturn]] void refuse_prefix(const std::string& text, const std::string& reason) {
  throw UsageError(
      fmt::format("line_prefix '{}': {}; it can contain ${{role_name}}, ${{local_rank}} and ${{rank}}", text, reason));
}

std::string prefix_of(const StartOptions& options, int rank) {
  const std::string& text = options.line_prefix;
  std::string filled;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t open = text.find("${", at);
    filled += text.substr(at, open - at);
    if (open == std::string::npos) break;
    const std::size_t close = text.find('}', open);
    if (close == std::string::npos) refuse_prefix(text, "a ${ is not closed by }");
    const std::string name = text.substr(open + 2, close - open - 2);
    if (name == "role_name")
      filled += options.name;
    else if (name == "local_rank" || name == "rank")
      filled += std::to_string(rank);
    else
      refuse_prefix(text, fmt::format("${{{}}} is unknown", name));
    at = close + 1;
  }
  if (filled.find('\n') != std::string::npos)
    refuse_prefix(text, "it must be one line, also after the name is filled in");
  return filled;
}

void check_filters(const char* option, const std::vector<std::string>& filters) {
  for (const std::string& text : filters)
    if (text.find('\n') != std::string::npos)
      throw UsageError(fmt::format("{}: '{}' has more than one line, so no line can contain it", option, text));
}

void make_file(const std::string& path) {
  if (path.empty()) return;
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file) throw SystemError("making " + path, errno);
}

RankLogs logs_of(const StartOptions& options, int rank) {
  const auto& console = options.console_ranks;
  const bool is_shown = console.empty() || std::find(console.begin(), console.end(), rank) != console.end();
  const auto tee = static_cast<std::uint32_t>(options.tee.of(rank));
  RankLogs logs;
  logs.files = static_cast<std::uint32_t>(options.redirects.of(rank)) | tee;
  logs.shown = is_shown ? tee : 0;
  logs.discarded = is_shown ? 0 : (kStdoutBit | kStderrBit) & ~logs.files;
  if (logs.shown != 0) logs.prefix = prefix_of(options, rank);
  return logs;
}

/// Streams of this process that are terminals, unless the user wants no colours (no-color.org).
std::uint32_t coloured_streams() {
  if (find_variable("NO_COLOR") || find_variable("TERM") == "dumb") return 0;
  return (isatty(STDOUT_FILENO) == 1 ? kStdoutBit : 0) | (isatty(STDERR_FILENO) == 1 ? kStderrBit : 0);
}

[[noreturn]] void refuse_directory(const std::string& path, const std::string& reason) {
  throw UsageError(fmt::format("log_dir '{}' {}", path, reason));
}

/// Name of an entry of the directory; empty if there is none.
std::string any_entry(const std::string& path) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(path, error);
  if (error) refuse_directory(path, fmt::format("cannot be read: {}", strerrordesc_np(error.value())));
  return entries == end(entries) ? "" : entries->path().filename().string();
}

void check_directory(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) refuse_directory(path, "does not exist: make it first, or leave log_dir out");
    refuse_directory(path, fmt::format("cannot be used: {}", strerrordesc_np(errno)));
  }
  if (!S_ISDIR(status.st_mode)) refuse_directory(path, "is not a directory: give an empty directory");
  if (const std::string entry = any_entry(path); !entry.empty())
    refuse_directory(path,
                     fmt::format("is not empty, it contains '{}': give each start a directory of its own", entry));
  if (faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
    refuse_directory(path, fmt::format("cannot be written to: {}", strerrordesc_np(errno)));
}

/// Made when it is needed; what is there already, and cannot be written to, is refused at once.
std::string trace_directory_of(const StartOptions& options) {
  std::string path = options.trace_dir.empty() ? find_variable("RETINUE_TRACE_DIR").value_or("") : options.trace_dir;
  struct stat status {};
  if (path.empty()) return path;
  if (stat(path.c_str(), &status) == 0) {
    if (!S_ISDIR(status.st_mode))
      throw UsageError(fmt::format("trace_dir '{}' is not a directory: give a directory", path));
    if (faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
      throw UsageError(fmt::format("trace_dir '{}' cannot be written to: {}", path, strerrordesc_np(errno)));
  }
  return std::filesystem::absolute(path);
}

std::string make_temporary_directory() {
  std::string path = std::filesystem::absolute(find_variable("TMPDIR").value_or("/tmp")) / "retinue-logs-XXXXXX";
  if (mkdtemp(path.data()) == nullptr)
    throw SystemError(fmt::format("making a directory for the ranks' logs, {} (give log_dir, or set TMPDIR)", path),
                      errno);
  return path;
}

}  // namespace

PreparedLogs::PreparedLogs(const StartOptions& options, int nprocs) {
  check_ranks(options, nprocs);
  prefix_of(options, 0);  // A wrong one is refused even where it isn't used yet.
  check_filters("console_filters", options.console_filters);
  const bool has_files = options.redirects.any(nprocs) || options.tee.any(nprocs);
  if (has_files || !options.console_ranks.empty())
    for (int rank = 0; rank < nprocs; ++rank) request_.ranks.push_back(logs_of(options, rank));
  request_.name = options.name;
  request_.trace_directory = trace_directory_of(options);
  request_.filters = options.console_filters;
  take_copy_filters("duplicate_stdout_filters", options, kStdoutBit);
  take_copy_filters("duplicate_stderr_filters", options, kStderrBit);
  if (options.log_dir.empty() && !has_files) return;
  request_.coloured = coloured_streams();
  choose_directory(options);
  try {
    request_.ranks.resize(static_cast<std::size_t>(nprocs));
    make_files();
  } catch (...) {
    remove_files();
    throw;
  }
}

void PreparedLogs::take_copy_filters(const char* option, const StartOptions& options, std::uint32_t bit) {
  const bool is_output = bit == kStdoutBit;
  const auto& filters = is_output ? options.duplicate_stdout_filters : options.duplicate_stderr_filters;
  if (filters.empty()) return;
  check_filters(option, filters);
  const auto shows = [bit](const RankLogs& rank) { return (rank.shown & bit) != 0; };
  if (std::none_of(request_.ranks.begin(), request_.ranks.end(), shows))
    throw UsageError(
        fmt::format("{} copies lines of tee'd streams, but no rank's {} is tee'd and shown: set tee to {} or 3", option,
                    is_output ? "standard output" : "standard error", bit));
  if (options.log_dir.empty())
    throw UsageError(fmt::format("{} writes a file into log_dir, but log_dir is not set: set it", option));
  (is_output ? request_.stdout_copy_filters : request_.stderr_copy_filters) = filters;
}

PreparedLogs::~PreparedLogs() {
  if (!is_kept_) remove_files();
}

void PreparedLogs::choose_directory(const StartOptions& options) {
  request_.is_temporary = options.log_dir.empty();
  if (request_.is_temporary) {
    request_.directory = make_temporary_directory();
  } else {
    check_directory(options.log_dir);
    request_.directory = std::filesystem::absolute(options.log_dir);
  }
}

void PreparedLogs::make_files() {
  for (int rank = 0; rank < static_cast<int>(request_.ranks.size()); ++rank) {
    const std::string folder = request_.rank_directory(rank);
    if (mkdir(folder.c_str(), 0777) != 0) {
      if (errno == EEXIST)
        refuse_directory(request_.directory, "is in use by another start: give each start a directory of its own");
      throw SystemError("making " + folder, errno);
    }
    ++folders_made_;
    for (const std::uint32_t bit : {kStdoutBit, kStderrBit}) make_file(request_.file_of(rank, bit));
  }
  for (const std::uint32_t bit : {kStdoutBit, kStderrBit}) {
    make_file(request_.copy_file_of(bit));
    copies_made_ |= bit;
  }
}

void PreparedLogs::remove_files() noexcept {
  if (request_.directory.empty()) return;
  for (int rank = 0; rank < folders_made_; ++rank) {
    for (const std::uint32_t bit : {kStdoutBit, kStderrBit})
      if (const std::string path = request_.file_of(rank, bit); !path.empty()) unlink(path.c_str());
    rmdir(request_.rank_directory(rank).c_str());
  }
  for (const std::uint32_t bit : {kStdoutBit, kStderrBit})
    if (const std::string path = request_.copy_file_of(bit); !path.empty() && (copies_made_ & bit) != 0)
      unlink(path.c_str());
  if (request_.is_temporary) rmdir(request_.directory.c_str());
}

void PreparedLogs::keep() {
  is_kept_ = true;
  if (!request_.is_temporary) return;
  write_standard_error(fmt::format("retinue: the logs of {} are in {}, which is kept if one of these ranks fails\n",
                                   request_.name, request_.directory));
}

void warn_if_full(const LogRequest& logs) {
  struct statvfs status {};
  if (logs.directory.empty() || statvfs(logs.directory.c_str(), &status) != 0) return;
  if (status.f_blocks == 0 || status.f_bavail != 0) return;
  write_standard_error(
      fmt::format("retinue: no space is left on the disk under {}: logs of {} may lack their last lines\n",
                  logs.directory, logs.name));
}

}  // namespace retinue
