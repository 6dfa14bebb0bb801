#include "process/trace/failure_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "ipc/memory/job_layout.h"
#include "ipc/memory/job_name.h"
#include "os/testing/fault_point.h"
#include "process/trace/trace_files.h"

namespace retinue {
namespace {

/// Of a rank, beside its logs: half a megabyte.
constexpr std::size_t kCallsBesideLogs = 1000;

}  // namespace

std::string failure_trace_folder(const LogRequest& logs, const JobMemory& memory, std::uint32_t context_id) {
  if (!logs.trace_directory.empty()) {
    std::string name(job_name(memory.header()));
    std::ranges::replace(name, '/', '_');
    return fmt::format("{}/{}.{:08x}/context_{}", logs.trace_directory, name, memory.header().job_id >> 32, context_id);
  }
  return logs.directory.empty() || logs.is_temporary ? "" : logs.directory + "/trace";
}

bool has_failure_trace(const std::string& folder) {
  std::error_code error;
  return !folder.empty() && std::filesystem::exists(fmt::format("{}/{}", folder, kTraceFile), error);
}

void write_failure_trace(const LogRequest& logs, const JobMemory& memory, std::uint32_t context_id,
                         std::span<const std::uint32_t> slots) {
  const std::string folder = failure_trace_folder(logs, memory, context_id);
  std::vector<RecordedProcess> processes = read_recordings(memory, slots);
  const auto has_none = [](const RecordedProcess& process) { return process.recording.calls.empty(); };
  if (folder.empty() || std::ranges::all_of(processes, has_none)) return;
  if (logs.trace_directory.empty())
    for (RecordedProcess& process : processes) {
      std::vector<RecordedCall>& calls = process.recording.calls;
      calls.erase(calls.begin(), calls.end() - static_cast<std::ptrdiff_t>(std::min(calls.size(), kCallsBesideLogs)));
    }
  fault_point("helper.trace");
  write_trace_folder(folder, MergedCalls(std::move(processes)), context_id);
}

}  // namespace retinue
