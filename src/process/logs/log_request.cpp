#include "process/logs/log_request.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "os/files/file_descriptor.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

void replace(int stream, const std::string& path, int flags) {
  // Others of the job's user may read it, as every file that the rank makes.
  const FileDescriptor file(open(path.c_str(), flags | O_CLOEXEC, 0666));
  if (!file)
    throw SystemError(fmt::format("opening {} for the rank's {}", path, stream == 1 ? "stdout" : "stderr"), errno);
  if (dup2(file.get(), stream) < 0) throw SystemError("redirecting the rank's output", errno);
}

}  // namespace

bool LogRequest::shows_any() const {
  return std::any_of(ranks.begin(), ranks.end(), [](const RankLogs& rank) { return rank.shown != 0; });
}

std::string LogRequest::rank_directory(int local_rank) const {
  return fmt::format("{}/{}", directory, local_rank);
}

std::string LogRequest::file_of(int local_rank, std::uint32_t bit) const {
  const auto rank = static_cast<std::size_t>(local_rank);
  if (rank >= ranks.size() || (ranks[rank].files & bit) == 0) return {};
  return rank_directory(local_rank) + (bit == kStdoutBit ? "/stdout.log" : "/stderr.log");
}

std::string LogRequest::copy_file_of(std::uint32_t bit) const {
  if (copy_filters(bit).empty()) return {};
  return directory + (bit == kStdoutBit ? "/filtered_stdout.log" : "/filtered_stderr.log");
}

void direct_streams(const LogRequest& logs, int local_rank) {
  const auto rank = static_cast<std::size_t>(local_rank);
  if (rank >= logs.ranks.size()) return;
  for (const std::uint32_t bit : {kStdoutBit, kStderrBit}) {
    const int stream = bit == kStdoutBit ? STDOUT_FILENO : STDERR_FILENO;
    // Appending: a child of the rank that opens the file by name overwrites nothing.
    if (const std::string path = logs.file_of(local_rank, bit); !path.empty())
      replace(stream, path, O_WRONLY | O_APPEND | O_CREAT);
    else if ((logs.ranks[rank].discarded & bit) != 0)
      replace(stream, "/dev/null", O_WRONLY);
  }
}

}  // namespace retinue
