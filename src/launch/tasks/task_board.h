#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "ipc/ring/message_ring.h"
#include "retinue/ipc/archive.h"
#include "retinue/ipc/detail/message_channel.h"
#include "retinue/launch/detail/entry.h"

/// Where tasks lie between the one who gives them and those who run them: a record for each, in job memory. Who has a
/// task in hand stands in its record, so that the task of a dead process is known exactly.
namespace retinue {

/// A record's state. The generation makes that a word never comes back.
class TaskState {
 public:
  enum class Phase : std::uint64_t {
    kFree = 0,
    kQueued = 1,
    kTaken = 2,   ///< The owner runs it.
    kValue = 3,   ///< The owner has left what the function returned.
    kRaised = 4,  ///< The owner has left the TaskReport of the exception.
  };

  explicit constexpr TaskState(std::uint64_t word) : word_(word) {}
  constexpr TaskState(std::uint32_t generation, Phase phase, std::uint32_t owner = 0)
      : word_(std::uint64_t{generation} << 32 | static_cast<std::uint64_t>(phase) << kPhaseShift | owner) {}

  constexpr std::uint64_t word() const { return word_; }
  constexpr std::uint32_t generation() const { return static_cast<std::uint32_t>(word_ >> 32); }
  constexpr Phase phase() const { return static_cast<Phase>(word_ >> kPhaseShift & 7); }
  /// A process, as owner_of() names it.
  constexpr std::uint32_t owner() const { return static_cast<std::uint32_t>(word_ & ((1u << kPhaseShift) - 1)); }
  constexpr bool is_done() const { return phase() == Phase::kValue || phase() == Phase::kRaised; }

 private:
  static constexpr int kPhaseShift = 26;

  std::uint64_t word_;
};

struct TaskRecord {
  std::atomic<std::uint64_t> state;
  std::uint32_t function;                         ///< Index in the board's functions.
  std::atomic<std::uint32_t> has_result_payload;  ///< 1: `result` may be a block that the board holds.
  std::uint64_t bytes;  ///< Of the arguments, then of the result, in `room`; kInPayload: in the payload.
  std::uint64_t calls;  ///< Of the function, in this task.
  BlockHandle arguments;
  BlockHandle result;

  static constexpr std::uint64_t kInPayload = ~std::uint64_t{0};
  static constexpr std::size_t kRoomBytes = 256 - 32 - 2 * sizeof(BlockHandle);
  std::byte room[kRoomBytes];
};
static_assert(sizeof(TaskRecord) == 256);

/// Names a record's task in the queues of tasks and of those that are done.
struct TaskName {
  std::uint32_t index = kNone;
  std::uint32_t generation = 0;

  static constexpr std::uint32_t kNone = 0xffffffffu;  ///< No task: whoever sleeps shall look up.

  std::uint64_t word() const { return std::uint64_t{generation} << 32 | index; }
  static TaskName of(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word), static_cast<std::uint32_t>(word >> 32)};
  }
};

/// The blocks of a board, as they travel to those who run tasks.
struct TaskBoardBlocks {
  SharedBlock records;
  SharedBlock tasks;  ///< A queue of TaskNames.
  SharedBlock done;   ///< The same.

  template <class Archive>
  void serialize(Archive& archive) {
    archive(records, tasks, done);
  }
};

struct TaskBoardHeader {
  static constexpr std::uint64_t kMagic = 0x44414f4254455252ull;
  static constexpr std::uint32_t kMostFunctions = 256;
  static constexpr std::uint32_t kMostWorkers = 512;

  std::uint64_t magic;
  std::uint32_t record_count;
  /// Tasks that were ever done, and how many there must be before it is worth to wake those who sleep.
  alignas(128) std::atomic<std::uint64_t> done_count;
  alignas(128) std::atomic<std::uint64_t> wake_at;
  std::atomic<std::uint32_t> to_leave;             ///< So many workers are to end, whichever are free first.
  std::atomic<std::uint32_t> ready[kMostWorkers];  ///< 1: its initializer has returned.
  BlockHandle functions[kMostFunctions];           ///< Payloads with an EntryKey each.
};

class TaskBoard {
 public:
  static TaskBoard create(const std::shared_ptr<JobMemory>& memory, std::uint32_t record_count);
  /// Errors: UsageError if the blocks are no board.
  explicit TaskBoard(const TaskBoardBlocks& blocks);

  TaskBoardBlocks blocks() const;
  const std::shared_ptr<JobMemory>& memory() const { return memory_; }
  const BlockHandle& handle() const { return handle_; }
  TaskBoardHeader& header() const { return *reinterpret_cast<TaskBoardHeader*>(block_.data()); }
  TaskRecord& record(std::uint32_t index) const { return records_[index]; }
  detail::MessageChannel& tasks() const { return *tasks_; }
  detail::MessageChannel& done() const { return *done_; }
  /// Where those sleep who wait for tasks to be done.
  RingBell& done_bell() const { return done_ring_.header().not_empty; }
  bool has_done() const { return done_ring_.has_message(); }
  /// Tells that the task is done.
  void note_done(TaskName name) const;

  /// Puts arguments into a record, or into a payload that the board holds then. Errors: SharedMemoryExhausted.
  void store_arguments(TaskRecord& record, const detail::Encoded& arguments) const;
  /// The same for what comes back. Only in the process that has the task in hand.
  void store_result(TaskRecord& record, const detail::Encoded& result) const;
  /// Where they lie. Errors: UsageError, as of the next, where job memory was overwritten.
  std::string_view arguments_of(const TaskRecord& record) const;
  static std::string_view bytes_in_room(const TaskRecord& record);
  /// Frees what the board holds for the record; a process that ran it must be done with it, or dead.
  void drop_payloads(TaskRecord& record) const;

 private:
  TaskBoard(const std::shared_ptr<JobMemory>& memory, SharedBlock block, std::shared_ptr<detail::MessageChannel> tasks,
            std::shared_ptr<detail::MessageChannel> done);

  std::shared_ptr<JobMemory> memory_;
  SharedBlock block_;
  BlockHandle handle_;
  TaskRecord* records_;
  std::shared_ptr<detail::MessageChannel> tasks_;
  std::shared_ptr<detail::MessageChannel> done_;
  mutable MessageRing done_ring_;  ///< The same.
};

}  // namespace retinue
