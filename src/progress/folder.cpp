#include "progress/folder.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <system_error>

#include "retinue/base/error.h"

namespace retinue {

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

std::filesystem::path default_log_folder() {
  const time_t now = time(nullptr);
  tm local{};
  localtime_r(&now, &local);
  char text[64] = {};
  strftime(text, sizeof text, "%b%d_%H-%M-%S", &local);
  return std::filesystem::path("runs") / fmt::format("{}_{}", text, host_name());
}

void make_log_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw SystemError(fmt::format("SummaryWriter: cannot make the folder {}", folder.string()), error.value());
}

}  // namespace retinue
