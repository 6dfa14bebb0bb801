#include "retinue/os/detail/late_after.h"

#include <fmt/format.h>

#include "base/parse_number.h"
#include "os/files/environment.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::chrono::nanoseconds kDefaultLateAfter = std::chrono::seconds(10);

}  // namespace

std::chrono::nanoseconds default_late_after() {
  const auto text = find_variable("RETINUE_LATE_AFTER_S");
  if (!text) return kDefaultLateAfter;
  const double seconds = parse_number<double>(*text).value_or(-1);
  constexpr double kMost = 1e9;
  if (!(seconds >= 0 && seconds <= kMost))
    throw UsageError(fmt::format(
        "RETINUE_LATE_AFTER_S is \"{}\": it must be a number of seconds, for example 2.5, or 0 for no reports", *text));
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

std::chrono::nanoseconds late_after_of(const std::optional<std::chrono::nanoseconds>& option) {
  return option ? *option : default_late_after();
}

}  // namespace retinue
