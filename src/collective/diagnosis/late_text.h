#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "os/process/process_activity.h"
#include "retinue/ipc/job_memory.h"

/// What reports of late ranks are made of.
namespace retinue {

constexpr std::size_t kNamedMissing = 8;
constexpr std::size_t kNamedWaiting = 16;

/// As "10.5 s" or "3 min".
std::string duration_text(std::chrono::nanoseconds time);

/// A report's first line, and its last: `again` is the time to the next one, `left` that to the wait's error.
std::string late_head(std::string_view group, std::string_view what);
std::string late_head(std::string_view group, const std::vector<int>& late);
std::string late_end(std::chrono::nanoseconds again, std::chrono::nanoseconds left);

using LooksAtProcesses = std::map<pid_t, std::optional<ActivityLook>>;

/// Shows a report, in which activity_line()s stand for what processes of this host do. Where the job has a guardian,
/// that completes the text, by a process that is not waited for and may look at stacks; otherwise this process does,
/// from an earlier look. False: another report lies there; later, then. `memory`: null outside of a job.
bool show_late_report(const JobMemory* memory, const std::string& text, const LooksAtProcesses& first_looks);

}  // namespace retinue
