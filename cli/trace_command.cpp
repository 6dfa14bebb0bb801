#include "trace_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <utility>

#include "jobs.h"
#include "process/trace/chrome_trace.h"
#include "process/trace/trace_files.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

std::vector<RecordedProcess> recordings_of(const FoundJob& job, const TraceOptions& options) {
  std::vector<RecordedProcess> processes = read_recordings(*job.memory);
  if (options.context >= 0)
    std::erase_if(processes, [&](const RecordedProcess& process) {
      return !process.is_rank() || process.context != static_cast<std::uint32_t>(options.context);
    });
  if (processes.empty())
    throw Error(
        fmt::format("no process{} of job {} has recorded a call: no process has made a communicator or process group "
                    "yet, or the job has RETINUE_FLIGHT_RECORDER=0",
                    options.context < 0 ? "" : fmt::format(" of context {}", options.context), job.name()));
  return processes;
}

/// A job's name may be anything.
std::string file_name_of(const FoundJob& job) {
  std::string name = job.name();
  std::ranges::replace(name, '/', '_');
  return name;
}

void write_chrome(const FoundJob& job, const MergedCalls& calls, std::string out) {
  const std::string text = chrome_trace(calls);
  if (out == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  if (out.empty()) out = file_name_of(job) + ".trace.json";
  write_whole_file(out, text);
  fmt::print("{}: open it in https://ui.perfetto.dev or chrome://tracing\n", out);
}

/// A folder of dumps for each context, since the tool knows one world.
void write_pytorch(const FoundJob& job, const MergedCalls& calls, std::string out) {
  if (out == "-") throw UsageError("retinue trace --format pytorch writes a file for each rank: give --out a folder");
  if (out.empty()) out = file_name_of(job) + ".trace";
  if (std::filesystem::exists(out) && (!std::filesystem::is_directory(out) || !std::filesystem::is_empty(out)))
    throw UsageError(fmt::format("{} exists already: give --out an empty or new folder", out));
  std::set<std::uint32_t> contexts;
  for (const RecordedProcess& process : calls.processes())
    if (process.is_rank()) contexts.insert(process.context);
  if (contexts.empty()) throw Error(fmt::format("no rank of job {} has recorded a call", job.name()));
  for (const std::uint32_t context : contexts) {
    const std::string folder = contexts.size() == 1 ? out : fmt::format("{}/context_{}", out, context);
    write_flight_dumps(folder, calls, context);
    fmt::print("{}: torchfrtrace {}\n", folder, folder);
  }
}

}  // namespace

int trace_command(const TraceOptions& options) {
  const FoundJob job = choose_job(options.job);
  const MergedCalls calls(recordings_of(job, options));
  if (options.format == "pytorch")
    write_pytorch(job, calls, options.out);
  else
    write_chrome(job, calls, options.out);
  return 0;
}

}  // namespace retinue
