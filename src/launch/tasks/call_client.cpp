// ProcessContext::call and RankContext::serve_calls.
#include "launch/tasks/call_client.h"

#include <fmt/format.h>

#include <utility>

#include "ipc/memory/context_table.h"
#include "ipc/memory/job_end.h"
#include "ipc/memory/payload.h"
#include "ipc/memory/ring_owner.h"
#include "launch/tasks/task_server.h"
#include "os/sync/futex.h"
#include "process/failure/failure_text.h"
#include "retinue/base/error.h"
#include "retinue/launch/rank_context.h"

namespace retinue {
namespace {

constexpr std::uint32_t kRecords = 128;

void publish(ProcessSlot& slot, CallState state) {
  slot.call_state.store(state, std::memory_order_release);
  futex_wake_all(slot.call_state);
}

std::exception_ptr unserved_failure(const RankOutcome& end) {
  const std::string text = fmt::format(
      "ProcessContext::call: rank {} (pid {}) ended before it served the call: it {}; ranks serve calls while they are "
      "in RankContext::serve_calls(){}",
      end.rank, end.pid, ending_text(end), end.stack.empty() ? "" : "\n" + end.stack);
  return end.end == RankEnd::kRaised ? std::make_exception_ptr(ProcessRaisedException(text, {end}, 0))
                                     : std::make_exception_ptr(ProcessExitedException(text, {end}, 0));
}

}  // namespace

CallClient::CallClient(const std::shared_ptr<JobMemory>& memory, std::uint32_t context, int rank)
    : TaskClient(memory, kRecords),
      context_(context),
      slot_(context_record(*memory, context).slots[rank]),
      rank_(rank) {
  ProcessSlot& slot = process_slot(*memory, slot_);
  const detail::Encoded blocks = detail::encode_value(board_.blocks());
  const BlockHandle payload = store_payload(*memory, {blocks.bytes}, blocks.references);
  memory->retain(payload, slot_);  // Given back with what else the rank holds.
  memory->release(payload);
  slot.calls = payload;
  publish(slot, kTakesCalls);
}

void CallClient::add_watched(std::vector<FutexWait>& words) {
  if (!is_attached_) return;
  words.push_back(process_slot(*memory_, kGuardianSlot).life.watch());
  const auto& changed = context_record(*memory_, context_).changed;
  words.push_back({&changed, changed.load(std::memory_order_acquire)});
}

std::pair<int, int> CallClient::runner_of(std::uint32_t) const {
  return {rank_, is_attached_ ? process_slot(*memory_, slot_).pid.load(std::memory_order_acquire) : 0};
}

void CallClient::reap() {
  if (!is_attached_) return;
  throw_if_job_ends(*memory_, "waiting for a call");
  const ProcessSlot& slot = process_slot(*memory_, slot_);
  if (slot.state.load(std::memory_order_acquire) == ProcessState::kDead) on_end(outcome_of(slot));
}

void CallClient::on_end(const RankOutcome& end) {
  collect();
  recover_tasks_of(owner_of(slot_, process_slot(*memory_, slot_)), end);
  const std::exception_ptr failure = unserved_failure(end);
  if (refusal_ == nullptr) refusal_ = failure;
  fail_all(failure);
  is_attached_ = false;
}

void CallClient::close() {
  check_process();
  const Lock lock(mutex_);
  if (refusal_ == nullptr)
    refusal_ = std::make_exception_ptr(Closed("ProcessContext::call: calls to this rank were ended"));
  board_.tasks().close();
}

void CallClient::detach() {
  const Lock lock(mutex_);
  if (!is_attached_) return;
  const ProcessSlot& slot = process_slot(*memory_, slot_);
  try {
    if (slot.state.load(std::memory_order_acquire) == ProcessState::kDead) on_end(outcome_of(slot));
  } catch (const Error&) {
    // The job ends, or job memory is not to be had: nothing can be taken in any more.
  }
  if (is_attached_) {
    refusal_ = std::make_exception_ptr(Closed("ProcessContext::call: the ProcessContext was destroyed"));
    fail_all(refusal_);
  }
  is_attached_ = false;
  board_.tasks().close();
}

void refuse_calls(const JobMemory& memory, std::uint32_t slot) {
  ProcessSlot& rank = process_slot(memory, slot);
  if (rank.call_state.load(std::memory_order_acquire) == kNoCallsYet) publish(rank, kNoMoreCalls);
}

bool RankContext::serve_calls(std::chrono::nanoseconds timeout) {
  constexpr std::chrono::seconds kLookUp{1};
  const Deadline deadline = Deadline::after(timeout);
  const ProcessSlot& slot = process_slot(*memory(), world_.process_slots[static_cast<std::size_t>(rank_)]);
  std::uint32_t state = kNoCallsYet;
  while ((state = slot.call_state.load(std::memory_order_acquire)) == kNoCallsYet) {
    if (deadline.passed()) return false;
    throw_if_wait_ends(*memory(), "waiting for calls");
    futex_wait(slot.call_state, kNoCallsYet, deadline.left(kLookUp));
  }
  if (state == kNoMoreCalls) return true;
  TaskBoardBlocks blocks;
  detail::decode_value(payload_bytes(*memory(), slot.calls), blocks);
  const TaskBoard board(blocks);
  return serve_tasks(board, *this, {.timeout = deadline.left()}) != ServeEnd::kTimeout;
}

}  // namespace retinue
