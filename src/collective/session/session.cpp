#include "collective/session/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>

#include "collective/board/channel.h"
#include "collective/diagnosis/report.h"
#include "collective/diagnosis/unmatched_calls.h"
#include "collective/kernels/kernels.h"
#include "ipc/memory/process_table.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

static_assert(kMaxProcesses * sizeof(PartEntry) <= kStageBytes && kMaxProcesses * kStagingLine <= kChunkBytes,
              "a table has a place for each member, and a chunk a line");

/// 1 to 7 bytes as the low ones of a word. By parts of fixed sizes: what is copied by a length that only shows at run
/// time goes through memory, and reading it back at once waits for that.
std::uint64_t short_word(const std::byte* data, std::size_t bytes) {
  const auto part = [&](auto word, std::size_t at) {
    std::memcpy(&word, data + at, sizeof word);
    return std::uint64_t{word} << 8 * at;
  };
  if (bytes >= 4) return part(std::uint32_t{}, 0) | part(std::uint32_t{}, bytes - 4);
  if (bytes >= 2) return part(std::uint16_t{}, 0) | part(std::uint16_t{}, bytes - 2);
  return part(std::uint8_t{}, 0);
}

void store_words(Line& line, const std::byte* data, std::size_t bytes) {
  std::size_t i = 0;
  for (; bytes >= 8; ++i, data += 8, bytes -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, sizeof word);
    line.inline_data[i].store(word, std::memory_order_relaxed);
  }
  if (bytes > 0) line.inline_data[i].store(short_word(data, bytes), std::memory_order_relaxed);
}

void store_function(Line& line, const ReduceFunction& function) {
  line.inline_data[kFunctionWord].store(function.object(), std::memory_order_relaxed);
  line.inline_data[kFunctionWord + 1].store(function.offset(), std::memory_order_relaxed);
  line.inline_data[kFunctionWord + 2].store(function.element_bytes(), std::memory_order_relaxed);
}

JobGroup checked(JobGroup group) {
  const int size = static_cast<int>(group.process_slots.size());
  if (group.memory == nullptr) throw UsageError(fmt::format("group \"{}\" has no job memory", group.name));
  if (group.rank < 0 || group.rank >= size)
    throw UsageError(fmt::format("group \"{}\": rank {} of {}", group.name, group.rank, size));
  if (!group.memory->is_of_this_process())
    throw error_in_fork(group.name, group.rank, "make communicators in that rank");
  for (const std::uint32_t slot : group.process_slots)
    if (slot >= kMaxProcesses)
      throw UsageError(fmt::format("group \"{}\": there is no process slot {}", group.name, slot));
  return group;
}

}  // namespace

Session::Session(JobGroup group, const CommunicatorOptions& options, const CallSite& site)
    : group_(checked(std::move(group))),
      joined_(join_board(group_, JobDeadline::after(group_.memory->header(), options.timeout))),
      board_(joined_.board),
      own_(board_.member(group_.rank)),
      waiter_(board_, group_, options),
      scratch_(board_.size()),
      paths_{board_.header().paths, board_.header().paths_source} {
  try {
    Places::publish(own_, options);
    const CollectiveCall open = {.kind = CollectiveKind::kOpen};
    Call call(open, site);
    call.shape.kind = open.kind;
    publish(call);
    await_arrival(call);
    end_call();
    note_opening();
    waiter_.count_cpus();
    if (waiter_.is_crowded() && paths_.source != TableSource::kEnvironment)
      paths_.table = paths_of_a_crowd(paths_.table);
    places_.find(group_, board_, joined_.block);
  } catch (...) {
    leave_board(group_, joined_);
    throw;
  }
}

Session::~Session() {
  if (is_in_a_fork()) return;
  const bool leaves_in_peace = !failure_ && !is_poisoned() && std::uncaught_exceptions() == 0;
  if (!leaves_in_peace) suppress_unmatched_calls(board_);
  // Behind that, and before it looks at the others': of two that leave together one at least sees the other.
  own_.state.store(MemberState::kLeft, std::memory_order_seq_cst);
  if (leaves_in_peace) report_unmatched_calls(group_, board_, agreed_);
  leave_board(group_, joined_);
}

Channel& Session::make_channel(int receiver) {
  JobMemory& memory = *group_.memory;
  const BlockHandle block = memory.allocate(Channel::bytes_for(size()), BlockUse::kRuntime);
  Channel& channel = *memory.at<Channel>(block.offset);
  std::memset(static_cast<void*>(&channel), 0, sizeof channel);
  // It lives as long as the board: its sender may end before the receiver has read all.
  memory.hand_over(block, joined_.block);
  board_.channel(rank(), receiver).store(block.offset, std::memory_order_release);
  return channel;
}

ReduceSources Session::reduce_sources(int count, ReduceOp op) {
  if (op == ReduceOp::kPremulSum)
    for (int i = 0; i < count; ++i)
      scratch_.factors[static_cast<std::size_t>(i)] =
          std::bit_cast<double>(line(i).inline_data[kFactorWord].load(std::memory_order_relaxed));
  return {.arrays = scratch_.sources.data(), .count = count, .factors = scratch_.factors.data()};
}

void Session::check_usable() {
  if (is_in_a_fork())
    throw error_in_fork(group_.name, rank(),
                        "make calls in that rank, or start a process of the job by spawn with StartMethod::kFork");
  if (failure_) std::rethrow_exception(failure_);
  if (is_poisoned()) fail_poisoned();
}

void Session::fill_shared(std::byte* to, const void* data, std::size_t bytes) const {
  (bytes <= paths_.table.stored_plainly ? copy_bytes : stream_bytes)(to, data, bytes);
}

std::byte* Session::own_stage(std::size_t bytes) {
  if (const std::uint64_t needed = staging_.call_before(sequence_, agreed_, bytes); needed > agreed_)
    await_agreement(needed);
  return board_.staging(rank()) + staging_.take(bytes);
}

std::uint8_t Session::stage_data(const Call& call) {
  if (call.shape.kind == CollectiveKind::kAllReduceCoalesced) return stage_buffers(call);
  const std::uint8_t uneven = call.what.uneven ? kUneven : 0;
  if (!call.gives || call.pattern.result == Pattern::Result::kNothing) return uneven;
  if (!call.inputs.empty()) return uneven | stage_parts(call);
  const std::size_t bytes = call.given_bytes(size());
  const bool nobody_takes = call.shape.kind == CollectiveKind::kGather && call.takes;
  if (bytes == 0 || nobody_takes) return uneven | kInJobMemory | kStaged;  // Wherever the others' are.
  if (!call.what.uneven && bytes <= line_space(call.shape.op)) return kPrivateMemory;
  const bool result_is_reached =
      call.shape.kind != CollectiveKind::kReduce || !call.takes || memory().contains(call.what.output, bytes);
  const bool in_job = !call.overwrites_itself && result_is_reached && memory().contains(call.what.input, bytes);
  const std::uint8_t place = uneven | (in_job ? kInJobMemory : kPrivateMemory);
  if (!stages_first(paths_.table, call.pattern, size(), bytes, in_job)) return place;
  fill_shared(own_stage(bytes), call.what.input, bytes);
  return place | kStaged;
}

std::uint8_t Session::stage_parts(const Call& call) {
  const auto aligned = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  const std::size_t table_bytes = aligned(call.inputs.size() * sizeof(PartEntry));
  std::size_t bytes = 0;
  bool in_job = true;
  for (const ConstBytes& part : call.inputs) {
    bytes += aligned(part.size());
    in_job = in_job && (part.empty() || memory().contains(part.data(), part.size()));
  }
  const bool stages = stages_first(paths_.table, call.pattern, size(), table_bytes + bytes, in_job);
  std::byte* stage = own_stage(table_bytes + (stages ? bytes : 0));
  auto* entry = reinterpret_cast<PartEntry*>(stage);
  std::size_t at = table_bytes;
  for (const ConstBytes& part : call.inputs) {
    *entry++ = {
        .bytes = part.size(), .offset = in_job && !part.empty() ? memory().offset_of(part.data()) : 0, .staged_at = at};
    if (stages && !part.empty()) fill_shared(stage + at, part.data(), part.size());
    at += aligned(part.size());
  }
  return static_cast<std::uint8_t>(kListed | (in_job ? kInJobMemory : 0) | (stages ? kStaged : 0));
}

std::uint64_t Session::call_before(std::uint64_t sequence) const {
  return agreed_ + kLines <= sequence ? sequence - kLines / 2 : 0;
}

bool Session::can_publish(const Call& call) {
  const std::size_t bytes = call.given_bytes(size());
  const bool is_list = !call.inputs.empty() || call.shape.kind == CollectiveKind::kAllReduceCoalesced;
  const std::size_t most_staged = is_list ? kStageBytes : bytes <= kStageBytes ? bytes : 0;
  const std::uint64_t needed =
      std::max(call_before(sequence_ + 1), staging_.call_before(sequence_ + 1, agreed_, most_staged));
  if (needed <= agreed_) return true;
  awaited_ = {line_sequences(needed, {0, size()}), needed, 0};
  return awaited_.arrived();
}

void Session::publish(const Call& call) {
  check_usable();
  ++sequence_;
  relayed_ = nullptr;
  is_in_call_ = true;
  if (const std::uint64_t needed = call_before(sequence_); needed > agreed_) await_agreement(needed);
  const std::size_t slot = sequence_ % kLines;
  Line& line = own_.lines[slot];
  staging_.begin_call(sequence_);
  const std::uint8_t place = stage_data(call);
  sites_[slot].write(line.site, call.site);
  const ReduceFunction* function = call.what.function;
  if (function != nullptr) names_[slot].write(own_.names[slot], *function);
  waiter_.note_cpu();
  const std::size_t bytes = call.given_bytes(size());
  RETINUE_CRASH_POINT();
  // From here on one store after the other: others spin on this cache line, and take it away in every pause.
  line.head.store(pack_head(call.shape, place, sequence_), std::memory_order_relaxed);
  line.count.store(call.shape.count, std::memory_order_release);
  if (call.gives && call.what.input != nullptr && !call.what.uneven && bytes <= line_space(call.shape.op))
    store_words(line, static_cast<const std::byte*>(call.what.input), bytes);
  else if (call.shape.kind == CollectiveKind::kReduce && call.takes && (place & kInJobMemory) != 0)
    line.inline_data[0].store(memory().offset_of(call.what.output), std::memory_order_relaxed);
  else if (call.shape.kind == CollectiveKind::kAllReduceCoalesced)
    line.inline_data[0].store(call.signature, std::memory_order_relaxed);
  if (call.shape.op == ReduceOp::kPremulSum)
    line.inline_data[kFactorWord].store(std::bit_cast<std::uint64_t>(call.what.factor), std::memory_order_relaxed);
  else if (function != nullptr)
    store_function(line, *function);
  const bool has_offset = (place & kInJobMemory) != 0 && memory().contains(call.what.input, bytes);
  line.where.store(pack_where(has_offset ? memory().offset_of(call.what.input) : 0,
                              (place & (kStaged | kListed)) != 0 ? staging_.place() : staging_.next_chunk()),
                   std::memory_order_relaxed);
  RETINUE_CRASH_POINT();
  // Pairs with the acquire loads of the waiters, and with `parked`, see Waiter.
  line.sequence.store(sequence_, std::memory_order_seq_cst);
  RETINUE_CRASH_POINT();
  waiter_.posted();
}

WordSet Session::progress_words(RankRange ranks) const {
  return {
      .base = reinterpret_cast<const std::byte*>(&board_.member(0).progress), .first = ranks.first, .last = ranks.last};
}

bool Session::has_posted(RankRange ranks, std::uint64_t step) {
  const WordSet words = progress_words(ranks);
  const std::uint64_t target = sequence_ << kStepBits | step;
  if (puts_aside_) {
    awaited_ = {words, target, ranks.first};
    return awaited_.arrived();
  }
  const Waiter::Outcome outcome = waiter_.wait(words, target);
  if (outcome != Waiter::Outcome::kArrived) fail(outcome, words, target);
  RETINUE_CRASH_POINT();
  return true;
}

bool Session::all_have_come() {
  awaited_ = {line_sequences(sequence_, {0, size()}), sequence_, 0};
  return awaited_.arrived();
}

void Session::fail_begun(Waiter::Outcome outcome, std::chrono::nanoseconds timeout) {
  fail(outcome, awaited_, Reporter(group_, board_, sequence_), timeout);
}

void Session::enter() {
  RETINUE_CRASH_POINT();
  // Either this member sees the other's failed call, or that one, looking whether it may leave, sees this store.
  own_.progress.store(sequence_ << kStepBits, std::memory_order_seq_cst);
  if (has_failed_member()) fail_poisoned();
  RETINUE_CRASH_POINT();
}

void Session::check_members() {
  if (has_failed_member()) fail_poisoned();
}

}  // namespace retinue
