#include "collective/board/rendezvous.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "ipc/memory/job_layout.h"
#include "os/process/process_look.h"
#include "os/sync/futex.h"
#include "os/testing/crash_point.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kNameBytes = 200;

/// One communicator's board. An entry is free unless `used`, which is written last when it is made.
struct Entry {
  std::atomic<std::uint32_t> used;
  std::uint32_t size;
  std::uint64_t generation;
  BlockHandle block;
  char name[kNameBytes];
};

/// Laid over JobHeader::group_registry, which starts as zeros.
struct Registry {
  std::atomic<std::uint32_t> holder;  ///< Futex; 0: unlocked, else pid and process slot of who holds it.
  std::uint32_t end;                  ///< Entries from here on were never used.
  std::uint64_t generations;
  PathTable paths;
  TableSource paths_source;
  Entry entries[(kGroupRegistryBytes - 64) / sizeof(Entry)];
};
static_assert(sizeof(Registry) <= kGroupRegistryBytes);

constexpr int kSlotBits = 10;
static_assert(kMaxProcesses <= 1u << kSlotBits);  // Linux pids need 22 bits more: both fit in the futex word.

bool holder_is_gone(const JobMemory& memory, std::uint32_t holder) {
  const ProcessSlot& slot = process_slot(memory, holder & ((1u << kSlotBits) - 1));
  const auto pid = static_cast<std::int32_t>(holder >> kSlotBits);
  return !slot.is_alive() || slot.state.load() == ProcessState::kFree || slot.pid.load() != pid;
}

/// Holds the registry for a scope. A holder that died is succeeded: an entry counts only once `used` is set, so that
/// what it left half done is just a free entry.
class RegistryLock {
 public:
  RegistryLock(const JobGroup& group, JobDeadline deadline)
      : registry_(*reinterpret_cast<Registry*>(group.memory->header().group_registry)) {
    const std::uint32_t slot = group.process_slots[static_cast<std::size_t>(group.rank)];
    const std::uint32_t own = static_cast<std::uint32_t>(getpid()) << kSlotBits | slot;
    for (;;) {
      std::uint32_t holder = 0;
      if (registry_.holder.compare_exchange_strong(holder, own, std::memory_order_acquire)) return;
      if (holder_is_gone(*group.memory, holder) &&
          registry_.holder.compare_exchange_strong(holder, own, std::memory_order_acquire))
        return;
      if (deadline.passed())
        throw TimeoutError(fmt::format("group \"{}\": process {} held the registry of groups until the timeout{}",
                                       group.name, holder >> kSlotBits,
                                       standstill_clause(static_cast<pid_t>(holder >> kSlotBits))));
      futex_wait(registry_.holder, holder, deadline.left(10ms));
    }
  }
  ~RegistryLock() {
    registry_.holder.store(0, std::memory_order_release);
    futex_wake(registry_.holder, 1);
  }
  RegistryLock(const RegistryLock&) = delete;
  RegistryLock& operator=(const RegistryLock&) = delete;

  Registry& operator*() const { return registry_; }

 private:
  Registry& registry_;
};

Board board_of(const JobMemory& memory, const Entry& entry) {
  return Board(memory.at(entry.block.offset), static_cast<int>(entry.size));
}

/// True for an entry whose members all left or died. Its block may be somebody else's by now, which `generation` tells.
bool is_stale(const JobMemory& memory, const Entry& entry) {
  const Board board = board_of(memory, entry);
  if (board.header().generation.load(std::memory_order_acquire) != entry.generation) return true;
  for (int rank = 0; rank < board.size(); ++rank) {
    const Member& member = board.member(rank);
    if (member.process_slot >= kMaxProcesses) return true;
    if (member.state.load(std::memory_order_acquire) != MemberState::kLeft && !is_gone(memory, member)) return false;
  }
  return true;
}

bool is_for(const JobMemory& memory, const Entry& entry, const JobGroup& group) {
  if (entry.size != group.process_slots.size() || group.name != entry.name) return false;
  const Board board = board_of(memory, entry);
  for (std::size_t rank = 0; rank < group.process_slots.size(); ++rank)
    if (board.member(static_cast<int>(rank)).process_slot != group.process_slots[rank]) return false;
  return board.member(group.rank).pid.load(std::memory_order_relaxed) == 0;
}

/// The oldest board of this name that the member has not joined yet; frees stale entries on the way.
Entry* find_entry(const JobMemory& memory, Registry& registry, const JobGroup& group) {
  Entry* oldest = nullptr;
  for (std::uint32_t i = 0; i < registry.end; ++i) {
    Entry& entry = registry.entries[i];
    if (entry.used.load(std::memory_order_relaxed) == 0) continue;
    if (is_stale(memory, entry)) {
      entry.used.store(0, std::memory_order_relaxed);
    } else if (is_for(memory, entry, group) && (oldest == nullptr || entry.generation < oldest->generation)) {
      oldest = &entry;
    }
  }
  return oldest;
}

/// What a new group begins with. The job's first group of several ranks measures, if any.
void choose_paths(Registry& registry, BoardHeader& board) {
  if (registry.paths_source == TableSource::kNone) {
    const ChosenTable chosen = first_path_table();
    registry.paths = chosen.table;
    registry.paths_source = chosen.source;
  }
  board.paths = registry.paths;
  board.paths_source = registry.paths_source;
  if (board.paths_source == TableSource::kToMeasure && board.size > 1) registry.paths_source = TableSource::kBuiltIn;
}

Entry& make_entry(JobMemory& memory, Registry& registry, const JobGroup& group) {
  std::uint32_t index = 0;
  while (index < registry.end && registry.entries[index].used.load(std::memory_order_relaxed) != 0) ++index;
  if (index == std::size(registry.entries))
    throw UsageError(fmt::format(
        "group \"{}\": the job has {} communicators already; destroy those that are not needed", group.name, index));
  Entry& entry = registry.entries[index];
  const int size = static_cast<int>(group.process_slots.size());
  entry.block = memory.allocate(Board::bytes_for(size), BlockUse::kRuntime);
  entry.generation = ++registry.generations;
  entry.size = static_cast<std::uint32_t>(size);
  std::memcpy(entry.name, group.name.c_str(), group.name.size() + 1);
  Board::initialise(memory.at(entry.block.offset), group, entry.generation);
  choose_paths(registry, board_of(memory, entry).header());
  RETINUE_CRASH_POINT();
  // Owned for all from the start: a member may come after the maker's death, and must find its board alive.
  for (const std::uint32_t slot : group.process_slots)
    if (slot != memory.own_slot() && process_slot(memory, slot).state.load() != ProcessState::kFree)
      memory.retain(entry.block, slot);
  RETINUE_CRASH_POINT();
  entry.used.store(1, std::memory_order_relaxed);
  RETINUE_CRASH_POINT();
  registry.end = std::max(registry.end, index + 1);
  return entry;
}

}  // namespace

bool is_gone(const JobMemory& memory, const Member& member) {
  const ProcessSlot& slot = process_slot(memory, member.process_slot);
  const ProcessState state = slot.state.load(std::memory_order_acquire);
  if (state == ProcessState::kFree || state == ProcessState::kFinished || state == ProcessState::kDead) return true;
  const std::int32_t pid = member.pid.load(std::memory_order_relaxed);
  // A rank whose program has ended may still come with its next one, as long as the guardian has not seen its end.
  if (pid == 0 && slot.context != ProcessSlot::kNoContext) return false;
  return !slot.is_alive() || (pid != 0 && slot.pid.load(std::memory_order_relaxed) != pid);
}

JoinedBoard join_board(const JobGroup& group, JobDeadline deadline) {
  if (group.name.size() >= kNameBytes)
    throw UsageError(fmt::format("group name of {} bytes is too long: at most {}", group.name.size(), kNameBytes - 1));
  const RegistryLock lock(group, deadline);
  RETINUE_CRASH_POINT();
  Registry& registry = *lock;
  Entry* entry = find_entry(*group.memory, registry, group);
  if (entry == nullptr) entry = &make_entry(*group.memory, registry, group);
  const JoinedBoard joined{.board = board_of(*group.memory, *entry), .block = entry->block};
  RETINUE_CRASH_POINT();
  joined.board.member(group.rank).pid.store(getpid(), std::memory_order_release);
  RETINUE_CRASH_POINT();
  return joined;
}

std::vector<SeenGroup> groups_of_job(const JobGroup& group, JobDeadline deadline) {
  const RegistryLock lock(group, deadline);
  const Registry& registry = *lock;
  std::vector<SeenGroup> groups;
  for (std::uint32_t i = 0; i < registry.end; ++i) {
    const Entry& entry = registry.entries[i];
    if (entry.used.load(std::memory_order_relaxed) == 0) continue;
    groups.push_back({.name = entry.name,
                      .board = board_of(*group.memory, entry),
                      .block = entry.block,
                      .generation = entry.generation});
  }
  return groups;
}

void set_job_paths(const JobGroup& group, const PathTable& table, JobDeadline deadline) {
  const RegistryLock lock(group, deadline);
  (*lock).paths = table;
  (*lock).paths_source = TableSource::kMeasured;
}

void leave_board(const JobGroup& group, const JoinedBoard& joined) {
  // Pairs with the waiters' acquire: who sees that the member left sees all lines that it ever published.
  joined.board.member(group.rank).state.store(MemberState::kLeft, std::memory_order_seq_cst);
  for (int rank = 0; rank < joined.board.size(); ++rank) {
    std::atomic<std::uint32_t>& bell = joined.board.member(rank).bell;
    bell.fetch_add(1, std::memory_order_seq_cst);
    if (rank != group.rank) futex_wake_all(bell);
  }
  try {
    group.memory->release(joined.block, group.process_slots[static_cast<std::size_t>(group.rank)]);
  } catch (const Error&) {
    // Called by destructors, which don't throw: the block comes back with all that this process owns.
  }
}

}  // namespace retinue
