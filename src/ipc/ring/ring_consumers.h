#pragma once

#include <optional>
#include <string>

#include "ipc/memory/job_clock.h"
#include "ipc/ring/ring_layout.h"
#include "retinue/ipc/job_memory.h"

/// Which processes ever got from a ring, so that nobody waits for ever until one of them gets again.
namespace retinue {

/// Who a process was that got, for when the job's table has another one in its slot. 0: nobody.
class ConsumerNote {
 public:
  explicit constexpr ConsumerNote(std::uint64_t word) : word_(word) {}
  /// The one in the slot now.
  static ConsumerNote of(const ProcessSlot& process);

  constexpr std::uint64_t word() const { return word_; }
  explicit constexpr operator bool() const { return word_ != 0; }
  constexpr int pid() const { return static_cast<int>(word_ >> kPidShift); }
  /// -1: it was none.
  constexpr int rank() const { return static_cast<int>(word_ >> kRankShift & 0xffffu) - 1; }
  /// Whether it is that incarnation of its slot.
  constexpr bool is(std::uint32_t incarnation) const { return (word_ & 0x7fffu) == (incarnation & 0x7fffu); }

 private:
  static constexpr std::uint64_t kIsOne = 0x8000;
  static constexpr int kRankShift = 16;
  static constexpr int kPidShift = 32;

  std::uint64_t word_;
};

/// The calling process gets from it, or waits for that.
void note_consumer(const JobMemory& memory, RingHeader& header);
/// The one that owner_of() names so; none where it is not noted any more.
ConsumerNote noted_consumer(const RingHeader& header, std::uint32_t owner);

/// How a put learns that it waits for nobody: to be asked from time to time while it does.
class ConsumerWatch {
 public:
  ConsumerWatch(const JobMemory& memory, const RingHeader& header) : memory_(memory), header_(header) {}

  /// Errors: PeerLost when all consumers are gone, and have been for the time that the ring says, and the last of them
  /// failed.
  void look();

 private:
  struct Gone {
    int rank = -1;     ///< Of the one that failed; -1: it was none.
    std::string text;  ///< "process 4711, was killed by SIGKILL"
  };
  /// The last consumer, if all are gone and it failed. What was found once stays found: the table forgets.
  void find_last();
  const ProcessSlot* last_consumer() const;
  const ProcessSlot* failed_beside(const ProcessSlot& stopped) const;
  bool is_any_left() const;

  const JobMemory& memory_;
  const RingHeader& header_;
  std::optional<Gone> last_;
  std::optional<JobDeadline> until_;
};

}  // namespace retinue
