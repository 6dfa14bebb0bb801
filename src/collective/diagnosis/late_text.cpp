#include "collective/diagnosis/late_text.h"

#include <fmt/format.h>

#include "base/ranks_text.h"
#include "ipc/memory/late_mailbox.h"
#include "retinue/os/detail/standard_error.h"

namespace retinue {
namespace {

std::string complete(const std::string& text, const LooksAtProcesses& first_looks) {
  return replace_activity_lines(text, [&](pid_t pid) {
    const auto before = first_looks.find(pid);
    return fmt::format(
        "    it {}\n    its stack: gdb -p {} -batch -ex 'thread apply all bt'\n",
        describe_activity(pid, before == first_looks.end() ? std::nullopt : before->second, look_at_activity(pid)),
        pid);
  });
}

}  // namespace

std::string duration_text(std::chrono::nanoseconds time) {
  const double seconds = std::chrono::duration<double>(time).count();
  if (seconds < 120) return fmt::format("{:.3g} s", seconds);
  return fmt::format("{:.0f} min", seconds / 60);
}

std::string late_head(std::string_view group, std::string_view what) {
  return fmt::format("retinue: group \"{}\": {}\n", group, what);
}

std::string late_head(std::string_view group, const std::vector<int>& late) {
  return late_head(group, fmt::format("{} {} late", ranks_text(late, kNamedMissing), late.size() == 1 ? "is" : "are"));
}

std::string late_end(std::chrono::nanoseconds again, std::chrono::nanoseconds left) {
  if (again >= left) return fmt::format("  The wait ends with an error in {}.\n", duration_text(left));
  return fmt::format("  This report repeats in {} if the wait lasts; the wait ends with an error in {}.\n",
                     duration_text(again), duration_text(left));
}

bool show_late_report(const JobMemory* memory, const std::string& text, const LooksAtProcesses& first_looks) {
  if (memory != nullptr && has_late_mailbox(*memory)) return put_late_text(*memory, text);
  write_standard_error(complete(text, first_looks));
  return true;
}

}  // namespace retinue
