#include "launch/runtime/forked_child.h"

#include <fmt/format.h>
#include <unistd.h>

#include <exception>
#include <string>

#include "retinue/launch/detail/task.h"

namespace retinue {
namespace {

std::string how_it_came_back() {
  if (std::current_exception() == nullptr) return "returned";
  const detail::TaskReport report = detail::report_current_exception();
  return fmt::format("threw {}: {}", report.type, report.message);
}

}  // namespace

void end_forked_child(const JobMemory& memory) noexcept {
  if (memory.is_of_this_process()) return;
  try {
    const std::string text = fmt::format(
        "retinue: process {}, which a rank's function forked, left that function: it {}. It is not a rank and ends "
        "here with exit code 1; end forked processes with _exit() or exec()\n",
        getpid(), how_it_came_back());
    // stdio's buffer is a copy of the rank's.
    static_cast<void>(write(STDERR_FILENO, text.data(), text.size()) < 0);
  } catch (...) {
    // It ends without a word.
  }
  _exit(1);
}

}  // namespace retinue
