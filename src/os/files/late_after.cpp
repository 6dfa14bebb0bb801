#include "os/files/late_after.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

#include "os/files/environment.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::chrono::nanoseconds kDefaultLateAfter = std::chrono::seconds(10);

}  // namespace

std::chrono::nanoseconds default_late_after() {
  const auto text = find_variable("RETINUE_LATE_AFTER_S");
  if (!text) return kDefaultLateAfter;
  double seconds = -1;
  const char* const last = text->data() + text->size();
  const auto [end, error] = std::from_chars(text->data(), last, seconds);  // The locale changes nothing of it.
  constexpr double kMost = 1e9;
  if (error != std::errc() || end != last || !(seconds >= 0 && seconds <= kMost))
    throw UsageError(fmt::format(
        "RETINUE_LATE_AFTER_S is \"{}\": it must be a number of seconds, for example 2.5, or 0 for no reports", *text));
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace retinue
