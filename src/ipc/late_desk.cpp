#include "ipc/late_desk.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "ipc/job_layout.h"
#include "ipc/process_table.h"
#include "os/bell_socket.h"

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
  const std::size_t whole = text.size() <= sizeof desk.text ? text.size() : text.rfind('\n', sizeof desk.text - 1) + 1;
  std::memcpy(desk.text, text.data(), whole);
  desk.bytes = static_cast<std::uint32_t>(whole);
  desk.state.store(own | LateDesk::kWritten, std::memory_order_release);
  if (const FileDescriptor socket = make_bell_socket())
    ring_bell_socket(socket.get(), desk.bell.load(std::memory_order_acquire));
  return true;
}

std::optional<std::string> take_from_late_desk(const JobMemory& memory) {
  LateDesk& desk = desk_of(memory);
  if (desk.state.load(std::memory_order_acquire) % LateDesk::kStates != LateDesk::kWritten) return std::nullopt;
  std::string text(desk.text, std::min<std::size_t>(desk.bytes, sizeof desk.text));
  desk.state.store(LateDesk::kFree, std::memory_order_release);
  return text;
}

}  // namespace retinue
