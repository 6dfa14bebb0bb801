#include "run_logs.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "retinue/base/error.h"

namespace retinue {
namespace {

[[noreturn]] void refuse(const std::string& path, int error) {
  throw UsageError(
      fmt::format("--log-dir: making the folder '{}' failed: {}; give a folder that this user can write to", path,
                  std::strerror(error)));
}

}  // namespace

std::string RunLogs::make_attempt(int number) {
  if (log_dir_.empty()) return {};
  if (run_folder_.empty()) {
    std::error_code error;
    std::filesystem::create_directories(log_dir_, error);
    if (error) refuse(log_dir_, error.value());
    std::string folder = log_dir_ + "/" + run_id_;
    if (mkdir(folder.c_str(), 0777) != 0) {
      if (errno != EEXIST) refuse(folder, errno);
      folder += "_XXXXXX";
      if (mkdtemp(folder.data()) == nullptr) refuse(folder, errno);
    }
    run_folder_ = folder;
  }
  std::string attempt = fmt::format("{}/attempt_{}", run_folder_, number);
  if (mkdir(attempt.c_str(), 0777) != 0) refuse(attempt, errno);
  return attempt;
}

}  // namespace retinue
