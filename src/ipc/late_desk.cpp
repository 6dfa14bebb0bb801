#include "ipc/late_desk.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "ipc/job_layout.h"
#include "ipc/process_table.h"
#include "os/bell_socket.h"
#include "os/clock.h"

namespace retinue {
namespace {

LateDesk& desk_of(const JobMemory& memory) {
  return memory.header().late_desk;
}

/// For who died while it wrote.
bool is_abandoned(const JobMemory& memory, std::uint32_t state) {
  return state % LateDesk::kStates == LateDesk::kBeingWritten &&
         !process_slot(memory, state / LateDesk::kStates % kMaxProcesses).is_alive();
}

/// At most `most` bytes of whole lines.
std::size_t whole_lines(std::string_view text, std::size_t most) {
  return text.size() <= most ? text.size() : text.rfind('\n', most - 1) + 1;
}

}  // namespace

std::string activity_line(pid_t pid) {
  return fmt::format("{}{}\n", kActivityMark, pid);
}

std::optional<pid_t> process_of_activity_line(std::string_view line) {
  if (line.empty() || line.front() != kActivityMark) return std::nullopt;
  pid_t pid = 0;
  const char* const end = line.data() + line.size();
  const auto [stopped, error] = std::from_chars(line.data() + 1, end, pid);
  return error == std::errc() && stopped == end && pid > 0 ? std::optional(pid) : std::nullopt;
}

bool has_late_desk(const JobMemory& memory) {
  return desk_of(memory).bell.load(std::memory_order_acquire) != 0 && process_slot(memory, kGuardianSlot).is_alive();
}

bool leave_at_late_desk(const JobMemory& memory, std::string_view text) {
  LateDesk& desk = desk_of(memory);
  std::uint32_t state = desk.state.load(std::memory_order_acquire);
  if (state % LateDesk::kStates != LateDesk::kFree && !is_abandoned(memory, state)) return false;
  const std::uint32_t own = memory.own_slot() * LateDesk::kStates;
  if (!desk.state.compare_exchange_strong(state, own | LateDesk::kBeingWritten, std::memory_order_acq_rel))
    return false;
  const std::size_t whole = whole_lines(text, sizeof desk.text);
  std::memcpy(desk.text, text.data(), whole);
  desk.bytes = static_cast<std::uint32_t>(whole);
  desk.state.store(own | LateDesk::kWritten, std::memory_order_release);
  if (const FileDescriptor socket = make_bell_socket())
    ring_bell_socket(socket.get(), desk.bell.load(std::memory_order_acquire));
  return true;
}

std::optional<ActivityNote> note_of_process(const JobMemory& memory, pid_t pid) {
  for (const LateDesk::Note& note : desk_of(memory).notes) {
    const std::uint32_t changes = note.changes.load(std::memory_order_acquire);
    if (changes % 2 != 0 || note.pid.load(std::memory_order_acquire) != pid || pid <= 0) continue;
    std::uint64_t words[LateDesk::Note::kWords];
    // Acquire, so that `changes` is read again after all of these.
    for (std::size_t i = 0; i < std::size(words); ++i) words[i] = note.text[i].load(std::memory_order_acquire);
    const std::uint64_t time_ns = note.time_ns.load(std::memory_order_acquire);
    if (note.changes.load(std::memory_order_relaxed) != changes) continue;
    char text[sizeof words];
    std::memcpy(text, words, sizeof words);
    return ActivityNote{.text{text, strnlen(text, sizeof text)}, .time_ns = time_ns};
  }
  return std::nullopt;
}

void note_activity(const JobMemory& memory, pid_t pid, std::string_view text) {
  auto& notes = desk_of(memory).notes;
  auto* note = std::ranges::find_if(notes, [pid](const LateDesk::Note& each) { return each.pid.load() == pid; });
  if (note == std::end(notes))
    note = std::ranges::min_element(notes, {}, [](const LateDesk::Note& each) { return each.time_ns.load(); });
  std::uint64_t words[LateDesk::Note::kWords] = {};
  std::memcpy(words, text.data(), whole_lines(text, sizeof words));
  // Sequentially consistent: nothing of what follows may be seen before it. It is odd already where a clerk died here.
  note->changes.fetch_or(1, std::memory_order_seq_cst);
  note->pid.store(pid, std::memory_order_release);
  note->time_ns.store(monotonic_ns(), std::memory_order_release);
  for (std::size_t i = 0; i < std::size(words); ++i) note->text[i].store(words[i], std::memory_order_release);
  note->changes.fetch_add(1, std::memory_order_release);
}

std::optional<std::string> take_from_late_desk(const JobMemory& memory) {
  LateDesk& desk = desk_of(memory);
  if (desk.state.load(std::memory_order_acquire) % LateDesk::kStates != LateDesk::kWritten) return std::nullopt;
  std::string text(desk.text, std::min<std::size_t>(desk.bytes, sizeof desk.text));
  desk.state.store(LateDesk::kFree, std::memory_order_release);
  return text;
}

}  // namespace retinue
