#include "launch/tasks/task_board.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "ipc/memory/payload.h"
#include "ipc/queue/channel_impl.h"
#include "ipc/ring/ring_bell.h"
#include "ipc/ring/ring_words.h"
#include "os/machine/memory.h"
#include "os/testing/crash_point.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::uint64_t kTaskNames = 0x4b534154u;  // The queues' type of messages.
constexpr std::size_t kFirstRecord = round_up(sizeof(TaskBoardHeader), alignof(std::max_align_t) * 16);

bool fits(const detail::Encoded& value) {
  return value.bytes.size() <= TaskRecord::kRoomBytes && value.references.empty();
}

std::span<const std::byte> bytes_of(const detail::Encoded& value) {
  return std::as_bytes(std::span(value.bytes.data(), value.bytes.size()));
}

}  // namespace

TaskBoard::TaskBoard(const std::shared_ptr<JobMemory>& memory, SharedBlock block,
                     std::shared_ptr<detail::MessageChannel> tasks, std::shared_ptr<detail::MessageChannel> done)
    : memory_(memory),
      block_(std::move(block)),
      handle_(block_.handle()),
      records_(reinterpret_cast<TaskRecord*>(block_.data() + kFirstRecord)),
      tasks_(std::move(tasks)),
      done_(std::move(done)),
      done_ring_(*memory_, done_->block().handle()) {}

TaskBoard TaskBoard::create(const std::shared_ptr<JobMemory>& memory, std::uint32_t record_count) {
  const std::size_t bytes = kFirstRecord + record_count * sizeof(TaskRecord);
  SharedBlock block = SharedBlock::allocate(memory, bytes);
  std::memset(block.data(), 0, bytes);
  auto& header = *new (block.data()) TaskBoardHeader();
  header.magic = TaskBoardHeader::kMagic;
  header.record_count = record_count;
  // Room for every record's name, and for names that outlived their tasks: a process may die between two steps.
  const std::size_t capacity = std::size_t{2} * record_count + TaskBoardHeader::kMostWorkers;
  // A name that a dying process had in hand comes again: whether its task was begun stands in the record.
  auto tasks = detail::MessageChannel::create(memory,
                                              {.capacity = capacity,
                                               .on_consumer_death = OnConsumerDeath::kRedeliver,
                                               .joinable = true,
                                               .max_deliveries = 0,
                                               .no_consumer_timeout = std::chrono::milliseconds::max()},
                                              kTaskNames, sizeof(std::uint64_t));
  auto done = detail::MessageChannel::create(
      memory, {.capacity = capacity, .no_consumer_timeout = std::chrono::milliseconds::max()}, kTaskNames,
      sizeof(std::uint64_t));
  return {memory, std::move(block), std::move(tasks), std::move(done)};
}

TaskBoard::TaskBoard(const TaskBoardBlocks& blocks)
    : TaskBoard(blocks.records.memory(), blocks.records, detail::MessageChannel::open(blocks.tasks, kTaskNames),
                detail::MessageChannel::open(blocks.done, kTaskNames)) {
  const bool is_board = block_.bytes() > kFirstRecord && header().magic == TaskBoardHeader::kMagic &&
                        (block_.bytes() - kFirstRecord) / sizeof(TaskRecord) >= header().record_count;
  if (!is_board) throw UsageError("the block that should contain the tasks of a pool contains something else");
}

/// Counts after it has put, and looks at the sleepers after it has counted; who is about to sleep does the opposite,
/// all of it sequentially consistently. So one of them sees the other.
void TaskBoard::note_done(TaskName name) const {
  if (done_ring_.try_put_word(name.word()) != RingResult::kDone)  // Somebody else is at it, or died at it.
    done_->put_word(name.word(), std::chrono::nanoseconds::max());
  RETINUE_CRASH_POINT();
  const std::uint64_t count = header().done_count.fetch_add(1, std::memory_order_seq_cst) + 1;
  RETINUE_CRASH_POINT();
  if (done_bell().parked.load(std::memory_order_seq_cst) == 0) return;
  if (count >= header().wake_at.load(std::memory_order_seq_cst)) ring_all_parked(done_bell());
}

TaskBoardBlocks TaskBoard::blocks() const {
  return {block_, tasks_->block(), done_->block()};
}

void TaskBoard::store_arguments(TaskRecord& record, const detail::Encoded& arguments) const {
  RETINUE_CRASH_POINT();
  record.has_result_payload.store(0, std::memory_order_relaxed);
  record.bytes = arguments.bytes.size();
  record.arguments = {};
  RETINUE_CRASH_POINT();
  if (fits(arguments)) {
    std::memcpy(record.room, arguments.bytes.data(), arguments.bytes.size());
    return;
  }
  detail::Payload payload(*memory_, bytes_of(arguments), arguments.references);
  memory_->hand_over(payload.handle(), handle_);
  RETINUE_CRASH_POINT();
  record.arguments = payload.handle();
  record.bytes = TaskRecord::kInPayload;
  payload.release();
}

std::string_view TaskBoard::bytes_in_room(const TaskRecord& record) {
  if (record.bytes > TaskRecord::kRoomBytes)
    throw UsageError(fmt::format("a task has {} bytes, but its record has space for {}: job memory was overwritten",
                                 record.bytes, TaskRecord::kRoomBytes));
  return {reinterpret_cast<const char*>(record.room), record.bytes};
}

std::string_view TaskBoard::arguments_of(const TaskRecord& record) const {
  return record.bytes == TaskRecord::kInPayload ? payload_bytes(*memory_, record.arguments) : bytes_in_room(record);
}

void TaskBoard::store_result(TaskRecord& record, const detail::Encoded& result) const {
  RETINUE_CRASH_POINT();
  if (fits(result)) {
    record.bytes = result.bytes.size();
    RETINUE_CRASH_POINT();
    std::memcpy(record.room, result.bytes.data(), result.bytes.size());
    return;
  }
  detail::Payload payload(*memory_, bytes_of(result), result.references);
  // Named first: of a process that dies in between, the payload is found.
  record.result = payload.handle();
  RETINUE_CRASH_POINT();
  record.has_result_payload.store(1, std::memory_order_release);
  RETINUE_CRASH_POINT();
  memory_->hand_over(payload.handle(), handle_);
  RETINUE_CRASH_POINT();
  payload.release();
  record.bytes = TaskRecord::kInPayload;
}

void TaskBoard::drop_payloads(TaskRecord& record) const {
  if (record.arguments) memory_->take_from_holder(record.arguments, handle_);
  RETINUE_CRASH_POINT();
  record.arguments = {};
  if (record.has_result_payload.exchange(0, std::memory_order_acq_rel) != 0)
    memory_->take_from_holder(record.result, handle_);
}

}  // namespace retinue
