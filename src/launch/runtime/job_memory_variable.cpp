#include "launch/runtime/job_memory_variable.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "os/files/environment.h"
#include "retinue/base/error.h"

namespace retinue {

std::size_t job_memory_of_environment() {
  const auto text = find_variable("RETINUE_JOB_MEMORY");
  if (!text || *text == "0") return 0;
  char* end = nullptr;
  errno = 0;
  const unsigned long long number = std::strtoull(text->c_str(), &end, 10);
  const std::string_view suffix(end);
  constexpr std::string_view kSuffixes = "KMGT";
  unsigned shift = 0;
  if (suffix.size() == 1 && kSuffixes.find(suffix[0]) != std::string_view::npos)
    shift = 10 * (static_cast<unsigned>(kSuffixes.find(suffix[0])) + 1);
  if (end == text->c_str() || errno != 0 || suffix.size() > 1 || (suffix.size() == 1 && shift == 0) ||
      text->starts_with('-') || number == 0 || number > (~0ull >> shift))
    throw UsageError(
        fmt::format("RETINUE_JOB_MEMORY is '{}'; it must be a number of bytes, for example 4294967296 or 4G", *text));
  return static_cast<std::size_t>(number) << shift;
}

}  // namespace retinue
