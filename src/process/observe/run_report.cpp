#include "process/observe/run_report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

#include "base/char_field.h"
#include "ipc/memory/job_layout.h"
#include "os/files/file_descriptor.h"
#include "process/observe/report_data.h"
#include "process/observe/report_page.h"
#include "process/trace/trace_files.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// In the page, where the data go.
constexpr std::string_view kPlace = "/*retinue-report-data*/";

std::filesystem::path folder_of(const std::string& file) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  return folder.empty() ? "." : folder;
}

std::string unfinished(const std::string& file, std::uint32_t context_id) {
  return fmt::format("{}.{}.part", file, context_id);
}

/// Contexts may end at once, each with a helper of its own.
FileDescriptor locked(const std::filesystem::path& folder) {
  FileDescriptor lock(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock || flock(lock.get(), LOCK_EX) != 0)
    throw SystemError(fmt::format("locking the report's folder {}", folder.string()), errno);
  return lock;
}

/// The data of a report of this job; empty where the file holds none.
nlohmann::json data_in(const std::string& file, const nlohmann::json& job) {
  std::ifstream stream(file, std::ios::binary);
  const std::string page{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const std::string_view before = kReportPage.substr(0, kReportPage.find(kPlace));
  const std::string_view after = kReportPage.substr(kReportPage.find(kPlace) + kPlace.size());
  const bool is_report =
      page.size() > before.size() + after.size() && page.starts_with(before) && page.ends_with(after);
  nlohmann::json data;
  if (is_report)
    data = nlohmann::json::parse(page.begin() + static_cast<std::ptrdiff_t>(before.size()),
                                 page.end() - static_cast<std::ptrdiff_t>(after.size()), nullptr, false);
  const bool is_of_this_job = data.is_object() && data.contains("job") && data["job"].is_object() &&
                              data["job"].value("id", "") == job["id"].get<std::string>() &&
                              data["contexts"].is_array();
  if (!is_of_this_job) return {{"job", job}, {"contexts", nlohmann::json::array()}};
  return data;
}

/// For the inside of a script element, which any text may be in the data.
std::string harmless(const nlohmann::json& data) {
  std::string text = data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at))
    text.replace(at, 1, "\\u003c");
  return text;
}

/// What the guardian keeps; nothing elsewhere.
std::optional<std::string>& kept_report_file() {
  static std::optional<std::string> file;
  return file;
}

}  // namespace

void keep_report_file(const JobMemory& memory) {
  if (!kept_report_file()) kept_report_file() = text_of(memory.header().report);
}

std::string report_file_of(const JobMemory& memory) {
  return kept_report_file().value_or(text_of(memory.header().report));
}

void ask_for_report(const JobMemory& memory, const std::string& file) {
  const std::string path = std::filesystem::absolute(file).string();
  JobHeader& header = memory.header();
  const auto refuse = [&](std::string_view why) {
    return UsageError(fmt::format("report {}: {}; name a file in a folder that you can write to", file, why));
  };
  if (path.size() >= sizeof header.report) throw refuse("the path is too long");
  if (std::filesystem::is_directory(path)) throw refuse("it is a folder");
  const std::string part = unfinished(path, 0);
  const FileDescriptor made(open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!made) throw refuse(std::strerror(errno));
  unlink(part.c_str());
  std::memcpy(header.report, path.c_str(), path.size() + 1);
}

void add_to_report(const JobMemory& memory, const EndedContext& context) {
  const std::string file = report_file_of(memory);
  nlohmann::json added = report_data_of(memory, context);
  const FileDescriptor lock = locked(folder_of(file));
  nlohmann::json data = data_in(file, report_data_of(memory));
  nlohmann::json& contexts = data["contexts"];
  const auto same = std::find_if(contexts.begin(), contexts.end(),
                                 [&](const nlohmann::json& each) { return each.value("id", 0u) == context.id; });
  if (same != contexts.end())
    *same = std::move(added);
  else
    contexts.push_back(std::move(added));
  std::string page(kReportPage);
  page.replace(page.find(kPlace), kPlace.size(), harmless(data));
  write_whole_file(file, page, unfinished(file, context.id));
}

void clean_up_report(const JobMemory& memory, std::uint32_t context_id) {
  if (const std::string file = report_file_of(memory); !file.empty()) unlink(unfinished(file, context_id).c_str());
}

}  // namespace retinue
