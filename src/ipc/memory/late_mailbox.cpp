#include "ipc/memory/late_mailbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/char_field.h"
#include "base/parse_number.h"
#include "base/split.h"
#include "ipc/memory/job_layout.h"
#include "ipc/memory/process_table.h"
#include "os/sockets/bell_socket.h"
#include "os/sync/clock.h"

namespace retinue {
namespace {

LateMailbox& mailbox_of(const JobMemory& memory) {
  return memory.header().late_mailbox;
}

/// For who died while it wrote.
bool is_abandoned(const JobMemory& memory, std::uint32_t state) {
  return state % LateMailbox::kStates == LateMailbox::kBeingWritten &&
         !process_slot(memory, state / LateMailbox::kStates % kMaxProcesses).is_alive();
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
  const std::optional<pid_t> pid = parse_number<pid_t>(line.substr(1));
  return pid.value_or(0) > 0 ? pid : std::nullopt;
}

std::string replace_activity_lines(std::string_view text, const std::function<std::string(pid_t)>& tell) {
  std::string whole;
  for (const std::string_view line : split(text, '\n')) {
    if (const auto pid = process_of_activity_line(line))
      whole += tell(*pid);
    else
      whole.append(line).append("\n");
  }
  return whole;
}

bool has_late_mailbox(const JobMemory& memory) {
  return mailbox_of(memory).bell.load(std::memory_order_acquire) != 0 && process_slot(memory, kGuardianSlot).is_alive();
}

bool put_late_text(const JobMemory& memory, std::string_view text) {
  LateMailbox& mailbox = mailbox_of(memory);
  std::uint32_t state = mailbox.state.load(std::memory_order_acquire);
  if (state % LateMailbox::kStates != LateMailbox::kFree && !is_abandoned(memory, state)) return false;
  const std::uint32_t own = memory.own_slot() * LateMailbox::kStates;
  if (!mailbox.state.compare_exchange_strong(state, own | LateMailbox::kBeingWritten, std::memory_order_acq_rel))
    return false;
  const std::size_t whole = whole_lines(text, sizeof mailbox.text);
  std::memcpy(mailbox.text, text.data(), whole);
  mailbox.bytes = static_cast<std::uint32_t>(whole);
  mailbox.state.store(own | LateMailbox::kWritten, std::memory_order_release);
  if (const FileDescriptor socket = make_bell_socket())
    ring_bell_socket(socket.get(), mailbox.bell.load(std::memory_order_acquire));
  return true;
}

std::optional<ActivityNote> note_of_process(const JobMemory& memory, pid_t pid) {
  for (const LateMailbox::Note& note : mailbox_of(memory).notes) {
    const std::uint32_t changes = note.changes.load(std::memory_order_acquire);
    if (changes % 2 != 0 || note.pid.load(std::memory_order_acquire) != pid || pid <= 0) continue;
    // Acquire, so that `changes` is read again after all of these.
    const std::string text = text_in(note.text);
    const std::uint64_t time_ns = note.time_ns.load(std::memory_order_acquire);
    if (note.changes.load(std::memory_order_relaxed) != changes) continue;
    return ActivityNote{.text = text, .time_ns = time_ns};
  }
  return std::nullopt;
}

void note_activity(const JobMemory& memory, pid_t pid, std::string_view text) {
  auto& notes = mailbox_of(memory).notes;
  auto* note = std::ranges::find_if(notes, [pid](const LateMailbox::Note& each) { return each.pid.load() == pid; });
  if (note == std::end(notes))
    note = std::ranges::min_element(notes, {}, [](const LateMailbox::Note& each) { return each.time_ns.load(); });
  std::uint64_t words[LateMailbox::Note::kWords] = {};
  std::memcpy(words, text.data(), whole_lines(text, sizeof words));
  // Sequentially consistent: nothing of what follows may be seen before it. It is odd already where a helper died here.
  note->changes.fetch_or(1, std::memory_order_seq_cst);
  note->pid.store(pid, std::memory_order_release);
  note->time_ns.store(monotonic_ns(), std::memory_order_release);
  for (std::size_t i = 0; i < std::size(words); ++i) note->text[i].store(words[i], std::memory_order_release);
  note->changes.fetch_add(1, std::memory_order_release);
}

std::optional<std::string> take_late_text(const JobMemory& memory) {
  LateMailbox& mailbox = mailbox_of(memory);
  if (mailbox.state.load(std::memory_order_acquire) % LateMailbox::kStates != LateMailbox::kWritten)
    return std::nullopt;
  std::string text(mailbox.text, std::min<std::size_t>(mailbox.bytes, sizeof mailbox.text));
  mailbox.state.store(LateMailbox::kFree, std::memory_order_release);
  return text;
}

}  // namespace retinue
