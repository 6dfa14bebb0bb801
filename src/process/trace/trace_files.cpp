#include "process/trace/trace_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "process/trace/chrome_trace.h"
#include "process/trace/flight_dump.h"
#include "retinue/base/error.h"

namespace retinue {

void write_whole_file(const std::string& path, const std::string& text) {
  write_whole_file(path, text, path + ".part");
}

void write_whole_file(const std::string& path, const std::string& text, const std::string& part) {
  std::ofstream stream(part, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  if (stream && std::rename(part.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  unlink(part.c_str());
  throw SystemError(fmt::format("writing {}", path), error);
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw SystemError(fmt::format("making the folder {}", path), error.value());
}

void write_flight_dumps(const std::string& folder, const MergedCalls& calls, std::uint32_t context) {
  make_folder(folder);
  for (const auto& [rank, dump] : flight_dumps(calls, context))
    write_whole_file(fmt::format("{}/rank_{}", folder, rank), dump);
}

void write_trace_folder(const std::string& folder, const MergedCalls& calls, std::uint32_t context) {
  make_folder(folder);
  write_whole_file(fmt::format("{}/{}", folder, kTraceFile), chrome_trace(calls));
  write_flight_dumps(folder, calls, context);
}

}  // namespace retinue
