#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "retinue/ipc/job_memory.h"

namespace retinue {

/// Where a rank that waits for late ones leaves a text for the guardian, which completes it with what those do and
/// shows it. One at a time: who finds the mailbox taken comes again.
struct LateMailbox {
  enum : std::uint32_t { kFree = 0, kBeingWritten = 1, kWritten = 2, kStates = 4 };

  std::atomic<std::uint32_t> state;  ///< One of these, plus kStates times the slot of who writes.
  std::uint32_t bytes;
  std::atomic<std::uint64_t> bell;  ///< The guardian's: its name, or 0 where nobody serves the mailbox.
  char text[16384];

  /// What was found out of late processes, the newest of each; written by one helper at a time.
  struct Note {
    static constexpr std::size_t kWords = 384;

    std::atomic<std::uint32_t> changes;       ///< Odd while it is being written.
    std::atomic<std::int32_t> pid;            ///< 0: none.
    std::atomic<std::uint64_t> time_ns;       ///< CLOCK_MONOTONIC.
    std::atomic<std::uint64_t> text[kWords];  ///< Filled with zeros.
  };
  Note notes[16];
};

/// What a late process did when somebody looked.
struct ActivityNote {
  std::string text;
  std::uint64_t time_ns = 0;  ///< CLOCK_MONOTONIC.
};

/// In a text: a line of this and the number of a process stands for what that process does.
constexpr char kActivityMark = '\x01';
std::string activity_line(pid_t pid);
/// The process of such a line, without its end; none of any other line.
std::optional<pid_t> process_of_activity_line(std::string_view line);
/// Whole lines with what `tell` says, lines too, in place of each activity_line().
std::string replace_activity_lines(std::string_view text, const std::function<std::string(pid_t)>& tell);

/// Whether the job has somebody who completes and shows such texts.
bool has_late_mailbox(const JobMemory& memory);
/// Leaves `text`, cut where it is too long. False: another one lies there; later, then. Never blocks.
bool put_late_text(const JobMemory& memory, std::string_view text);

/// The newest note of that process, if any.
std::optional<ActivityNote> note_of_process(const JobMemory& memory, pid_t pid);

/// The helper's alone: in place of an older one of that process, or else of the oldest one. Cut where it is too long.
void note_activity(const JobMemory& memory, pid_t pid, std::string_view text);
/// The guardian's alone: takes the text that lies there.
std::optional<std::string> take_late_text(const JobMemory& memory);

}  // namespace retinue
