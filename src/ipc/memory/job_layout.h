#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ipc/memory/block_table.h"
#include "ipc/memory/late_mailbox.h"
#include "ipc/memory/process_slot.h"
#include "ipc/memory/process_table.h"
#include "os/process/confinement.h"
#include "os/process/process_calls.h"
#include "os/sync/robust_mutex.h"
#include "retinue/ipc/block_handle.h"

/// The fixed part of job memory. All of it starts as zeros; what is never touched is never committed.
namespace retinue {

constexpr std::uint64_t kJobMagic = 0x31455554494e4552ull;  // "RETINUE1", shortened to eight bytes.
/// Changes with every change of the layout; a process built against another one is refused, and one of another MINOR
/// version of Retinue too.
constexpr std::uint32_t kJobLayoutVersion = 15;

constexpr std::uint32_t kProgramSlot = 0;   ///< The process that made the job.
constexpr std::uint32_t kGuardianSlot = 1;  ///< Its guardian.

constexpr std::uint32_t kMaxContexts = 512;
constexpr std::uint32_t kMaxPollers = 1024;
constexpr std::size_t kGroupRegistryBytes = std::size_t{1} << 20;

/// One call of spawn or start_processes: the ranks that were started together.
struct ContextRecord {
  enum State : std::uint32_t { kFree = 0, kReserved = 1, kRunning = 2, kEnded = 3 };

  std::atomic<std::uint32_t> state;
  std::atomic<std::uint32_t> reserved_by;  ///< As that of a process slot.
  std::atomic<std::uint32_t> changed;  ///< Futex: bumped by the guardian with every change of a member or of `state`.
  std::uint32_t id;                    ///< Unique in the job: contexts are reused, ids are not.
  std::uint32_t nprocs;
  std::uint32_t parent_slot;
  /// `id` when the owner let go, and then kClaimed: the guardian frees the record when the last rank has ended.
  std::atomic<std::uint32_t> abandoned;
  static constexpr std::uint32_t kClaimed = 0xffffffffu;
  std::atomic<std::uint32_t> retrieved;  ///< 1: somebody was told how its ranks ended, or nobody needs to be.
  std::uint32_t daemon;                  ///< 1 when its ranks are daemonic: they may start nothing themselves.
  std::int64_t stop_ms;                  ///< Its grace and stop policy, and after it those of who started it.
  BlockHandle request;                   ///< The encoded start request.
  std::uint32_t slots[kMaxProcesses];    ///< By rank.
};

/// Who waits in poll() for something in job memory; see poller.h.
struct PollerEntry {
  std::atomic<std::uint32_t> owner;  ///< As owner_of() says, with kTaken; 0: free.
  std::atomic<std::uint32_t> waits;  ///< Grows; odd: it wants a byte.
  std::atomic<std::uint64_t> name;   ///< Of its socket: five characters, after the zero that begins it.

  static constexpr std::uint32_t kTaken = std::uint32_t{1} << 31;
};

/// What processes of the job find by a name; see retinue/ipc/published.h.
struct PublishedName {
  static constexpr std::size_t kNameBytes = 64;

  std::atomic<std::uint32_t> used;  ///< Written last: 1 when the rest is whole.
  BlockHandle block;                ///< Not held: who comes late finds it gone.
  char name[kNameBytes];
};

struct PublishedNames {
  RobustMutex mutex;
  std::atomic<std::uint32_t> changes;  ///< Futex.
  PublishedName names[256];
};

struct JobHeader {
  std::uint64_t magic;
  std::uint32_t layout_version;
  std::uint32_t header_bytes;
  std::uint64_t capacity_bytes;
  char version[16];      ///< Of Retinue, as "0.7.0"; since layout 14.
  std::uint64_t inode;   ///< Of the memfd, as /proc/PID/maps shows it.
  std::uint64_t job_id;  ///< Random: tells jobs apart in messages and names.
  std::atomic<std::uint32_t> next_context_id;
  std::atomic<std::uint32_t> guardian_ready;  ///< Futex: 1 when the guardian serves requests.
  std::atomic<std::uint32_t> swept;           ///< 1 when the guardian has left nothing behind and ends.
  std::uint32_t guardian_forks_program;       ///< 1 when the guardian can fork functions of `program`.
  FileIdentity program;                       ///< The executable that made the job; its path may be another's by now.
  Confinement confinement;                    ///< Of `program` at its Runtime, and so the guardian's.
  std::atomic<std::int64_t> longest_stop_ms;  ///< Of all contexts' `stop_ms`.
  std::atomic<std::uint32_t> unretrieved_failures;  ///< Contexts that failed, and whose failure nobody asked for.
  std::atomic<std::int32_t> stop_asked;  ///< A signal: `retinue stop` began all stop sequences with it; no rank starts.
  std::atomic<std::uint64_t> clock;      ///< Deadlines go by it; see job_clock.h. Written by the guardian.
  std::atomic<std::uint32_t> name_bytes;  ///< Valid bytes of `name`; see job_name.h.
  char name[128];
  char report[1024];  ///< Path of the file that the job's report goes to, see run_report.h; empty: none.
  /// Records, and slots, from here on were never used: who looks at all leaves those alone, which then cost no memory.
  std::atomic<std::uint32_t> context_end;
  std::atomic<std::uint32_t> process_end;
  ContextRecord contexts[kMaxContexts];
  std::atomic<std::uint32_t> poller_end;  ///< Entries from here on were never used.
  PollerEntry pollers[kMaxPollers];
  PublishedNames published;
  LateMailbox late_mailbox;
  BlockTable blocks;
  alignas(4096) ProcessSlot processes[kMaxProcesses];
  /// Zeroed; laid out by the collective module, which finds the boards of groups here.
  alignas(4096) std::byte group_registry[kGroupRegistryBytes];
};

}  // namespace retinue
