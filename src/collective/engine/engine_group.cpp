#include "collective/engine/engine_group.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/thrown_here.h"
#include "collective/algorithms/slices.h"
#include "collective/call/buffer_list.h"
#include "collective/diagnosis/report.h"
#include "collective/kernels/kernels.h"
#include "retinue/os/detail/late_after.h"

namespace retinue {
namespace {

/// Up to here each rank gets all of the data and reduces them alone: one step in place of two.
constexpr std::size_t kReducedByEach = std::size_t{16} << 10;
/// Of the data that are reduced at a time, those of one rank, or of all where each gets those of all.
constexpr std::size_t kRoundBytes = std::size_t{32} << 20;

std::unique_ptr<Engine> checked_engine(std::unique_ptr<Engine> engine, const EngineMembers& members) {
  if (!engine || members.size < 1 || members.rank < 0 || members.rank >= members.size)
    throw UsageError(fmt::format("group \"{}\": rank {} of {}, {} engine", members.name, members.rank, members.size,
                                 engine ? "with an" : "without an"));
  return engine;
}

}  // namespace

EngineGroup::EngineGroup(std::unique_ptr<Engine> engine, const EngineMembers& members,
                         const CommunicatorOptions& options)
    : engine_(checked_engine(std::move(engine), members)),
      name_(members.name),
      rank_(members.rank),
      size_(static_cast<std::size_t>(members.size)),
      parts_(*engine_, members.rank, members.size),
      log_({.memory = members.memory,
            .name = members.name,
            .rank = members.rank,
            .process_slots = std::vector<std::uint32_t>(size_)}),
      late_(members, late_after_of(options.late_after)),
      timeout_(options.timeout) {
  set_timeout(options.timeout);
  engine_->look_while_waiting([this] { return late_.look(wait()); },
                              [this](int rank) { return late_.has_left(rank, wait()); });
  log_.open(0);
}

/// Engines add it to the time of day.
void EngineGroup::set_timeout(std::chrono::nanoseconds timeout) {
  constexpr std::chrono::nanoseconds kLongest = std::chrono::years(50);
  engine_->set_timeout(timeout_ = std::min(timeout, kLongest));
}

EngineGroup::~EngineGroup() {
  if (getpid() == owner_ && !failure_) late_.leave(sequence_);
}

void EngineGroup::monitored_barrier(const MonitoredBarrierOptions& options, CallSite site) {
  const std::chrono::nanoseconds before = timeout_;
  set_timeout(options.timeout.value_or(before));
  run(CollectiveCall::barrier(), site.inside(OuterCall::kMonitoredBarrier),
      options.wait_all_ranks ? WhenLost::kAwaitAll : WhenLost::kEnd);
  set_timeout(before);
}

void EngineGroup::run(const CollectiveCall& what, CallSite site, WhenLost when_lost) {
  const Call call = checked_call(what, rank_, size(), site);
  if (getpid() != owner_) throw error_in_fork(name_, rank_, "make calls in that rank");
  if (failure_) std::rethrow_exception(failure_);
  if (size_ == 1) return run_alone(what);
  ++sequence_;
  call_ = &call;
  begin_ = LateByStore::Clock::now();
  log_.begin(call, sequence_, log_.now());
  if (sequence_ == 1) late_.begin();
  try {
    carry_out(call);
    late_.end(sequence_);
    return log_.end();
  } catch (const PeerLost& error) {
    failure_ = failure_of(error, when_lost);
  } catch (const TimeoutError& error) {
    const std::string missing = late_.missing_text(wait(), LateByStore::kFirstWord);
    failure_ = thrown_here(TimeoutError(late_.agreed_timeout(head() + error.what() + missing)));
  } catch (...) {
    failure_ = std::current_exception();
  }
  log_.fail();
  engine_->close();
  std::rethrow_exception(failure_);
}

std::exception_ptr EngineGroup::failure_of(const PeerLost& error, WhenLost when_lost) {
  const std::string timeout = late_.timeout_of_others(sequence_);
  if (!timeout.empty()) return thrown_here(TimeoutError(timeout));
  // Of several at one address an engine may not know which, and who closed a connection may have done so for another.
  const std::optional<PeerLost> agreed = late_.agreed_loss(wait(), /*looks=*/error.ranks().empty());
  const PeerLost& loss = agreed ? *agreed : error;
  std::vector<int> lost = loss.ranks();
  std::string text = head();
  if (lost.empty()) {
    lost = late_.ranks_that_left(wait());
    for (const int rank : lost) text += late_.name_of(rank) + " has left the group; ";
  }
  text += loss.what() + last_seen(lost);
  if (when_lost == WhenLost::kAwaitAll) {
    const std::chrono::nanoseconds waited = LateByStore::Clock::now() - begin_;
    text += late_.missing_text(wait(), std::max(timeout_ - waited, LateByStore::kFirstWord), lost);
  }
  return thrown_here(PeerLost(text, lost));
}

std::string EngineGroup::own_call() const {
  return fmt::format("rank {} waits in its {} call, {}", rank_, ordinal(sequence_),
                     described_at(CallNotice(*call_, sequence_).seen()));
}

std::string EngineGroup::head() const {
  return fmt::format("group \"{}\": {}, and ", name_, own_call());
}

std::string EngineGroup::history_of(int rank) const {
  const std::vector<CallNotice>& notices = have_met_ ? notices_ : last_notices_;
  if (notices.empty()) return "before its first call";
  const SeenCall call = notices[static_cast<std::size_t>(rank)].seen();
  if (have_met_) return fmt::format("in its {} call, {}", ordinal(call.sequence), described_at(call));
  return fmt::format("after {} call{}, the last {}", call.sequence, call.sequence == 1 ? "" : "s", described_at(call));
}

std::string EngineGroup::last_seen(const std::vector<int>& ranks) const {
  std::string text;
  for (const int rank : ranks) text += fmt::format("; rank {} was seen {}", rank, history_of(rank));
  return text;
}

LateByStore::Wait EngineGroup::wait() const {
  return {.sequence = sequence_,
          .since = begin_,
          .timeout = timeout_,
          .have_all_come = have_met_,
          .own = [this] { return own_call(); },
          .history = [this](int rank) { return history_of(rank); }};
}

void EngineGroup::carry_out(const Call& call) {
  const bool is_uneven = meet(call);
  if (call.pattern.result == Pattern::Result::kNothing) return;
  if (is_uneven) check_sizes(call);
  if (is_reduction(call.shape.kind)) return reduce(call);
  if (call.shape.kind != CollectiveKind::kBroadcast) return parts_.exchange(call, is_uneven);
  if (call.count > 0) engine_->broadcast(call.output_part(rank_), call.what.root);
}

bool EngineGroup::meet(const Call& call) {
  const CallNotice own(call, sequence_);
  have_met_ = false;
  std::swap(notices_, last_notices_);
  notices_.resize(size_);
  engine_->all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(notices_)));
  have_met_ = true;
  begin_ = LateByStore::Clock::now();  // What takes long from here on is not that somebody came late.
  const bool is_uneven =
      std::any_of(notices_.begin(), notices_.end(), [](const CallNotice& notice) { return notice.is_uneven != 0; });
  check_notices(name_, notices_, is_uneven);
  factors_.clear();
  for (const CallNotice& notice : notices_) factors_.push_back(notice.factor);
  return is_uneven;
}

/// What each gives to each, and takes, as all tell all.
void EngineGroup::check_sizes(const Call& call) {
  const std::vector<std::uint64_t> own = part_sizes(call, size());
  std::vector<std::uint64_t> all(own.size() * size_);
  engine_->all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  for (std::size_t giver = 0; giver < size_; ++giver)
    for (std::size_t taker = 0; taker < size_; ++taker) {
      const std::uint64_t given = all[giver * own.size() + taker];
      const std::uint64_t taken = all[taker * own.size() + size_ + giver];
      if (given != taken) throw CollectiveMismatch(wrong_size(name_, notices_, taker, taken, giver, given));
    }
}

void EngineGroup::reduce(const Call& call) {
  thrown_ = nullptr;
  if (call.shape.kind == CollectiveKind::kReduceScatter) {
    const std::span<const std::byte> inputs = parts_.parts_for_this(call);
    const Bytes output = call.output_part(rank_);
    reduce_arrays(call, inputs.data(), output.size(), size(), output.data(), output.size());
  } else if (call.shape.kind == CollectiveKind::kAllReduceCoalesced) {
    BufferList buffers;
    buffers.set(call.what.outputs);
    packed_.resize(call.part_bytes());
    buffers.gather(packed_.data(), 0, packed_.size());
    reduce_whole(call, packed_, packed_.data());
    buffers.scatter(packed_.data(), 0, packed_.size());
  } else {
    reduce_whole(call, call.input_part(rank_), call.takes ? call.output_part(rank_).data() : nullptr);
  }
  if (call.what.function != nullptr) exchange_throws();
}

void EngineGroup::reduce_whole(const Call& call, ConstBytes input, std::byte* output) {
  const std::size_t unit = slice_unit(call.element_bytes);
  const bool is_scan = call.shape.kind == CollectiveKind::kScan;
  const std::size_t round = std::max(kRoundBytes / unit / (is_scan ? size_ : 1), std::size_t{1}) * unit;
  for (std::size_t at = 0; at < input.size(); at += round) {
    const ConstBytes part = input.subspan(at, std::min(round, input.size() - at));
    std::byte* const to = output == nullptr ? nullptr : output + at;
    if (is_scan)
      reduce_by_each(call, part, rank_ + 1, to);
    else if (part.size() <= kReducedByEach)
      reduce_by_each(call, part, size(), to);
    else
      reduce_in_slices(call, part, to);
  }
}

void EngineGroup::reduce_by_each(const Call& call, ConstBytes input, int sources, std::byte* output) {
  others_.resize(input.size() * size_);
  engine_->all_gather(input, others_);
  if (output != nullptr) reduce_arrays(call, others_.data(), input.size(), sources, output, input.size());
}

void EngineGroup::reduce_in_slices(const Call& call, ConstBytes input, std::byte* output) {
  const std::size_t unit = slice_unit(call.element_bytes);
  std::vector<std::size_t> slices;
  for (int rank = 0; rank < size(); ++rank) slices.push_back(slice_of(input.size(), size(), rank, unit).bytes);
  const std::size_t own = slices[static_cast<std::size_t>(rank_)];
  others_.resize(own * size_);
  engine_->all_to_all(input, slices, others_, std::vector<std::size_t>(size_, own));
  result_.resize(slices.front());
  reduce_arrays(call, others_.data(), own, size(), result_.data(), own);
  if (!call.pattern.only_root_takes) {
    // The last slices may be shorter than the first one; they lie behind each other all the same.
    others_.resize(slices.front() * size_);
    engine_->all_gather(result_, others_);
    copy_bytes(output, others_.data(), input.size());
    return;
  }
  std::vector<std::size_t> given(size_);
  given[static_cast<std::size_t>(call.what.root)] = own;
  if (output == nullptr) std::fill(slices.begin(), slices.end(), std::size_t{0});
  engine_->all_to_all({result_.data(), own}, given, {output, output == nullptr ? 0 : input.size()}, slices);
}

void EngineGroup::reduce_arrays(const Call& call, const std::byte* inputs, std::size_t stride, int sources,
                                std::byte* output, std::size_t bytes) {
  if (bytes == 0) return;
  arrays_.clear();
  for (int i = 0; i < sources; ++i) arrays_.push_back(inputs + static_cast<std::size_t>(i) * stride);
  void* destination = output;
  const std::size_t count = bytes / call.element_bytes;
  if (call.what.function == nullptr) {
    kernels().get(call.shape.dtype, call.shape.op)({arrays_.data(), sources, factors_.data()}, {&destination, 1},
                                                   count);
    return;
  }
  try {
    call.what.function->kernel()({arrays_.data(), sources, &destination, 1, count});
  } catch (...) {
    thrown_ = std::current_exception();
  }
}

void EngineGroup::exchange_throws() {
  const std::byte own{thrown_ ? std::uint8_t{1} : std::uint8_t{0}};
  std::vector<std::byte> all(size_);
  engine_->all_gather({&own, 1}, all);
  if (thrown_) std::rethrow_exception(thrown_);
  const auto first = std::find_if(all.begin(), all.end(), [](std::byte one) { return one != std::byte{0}; });
  if (first == all.end()) return;
  const int rank = static_cast<int>(first - all.begin());
  throw PeerLost(fmt::format("the reduction threw on rank {}; see the error of that rank", rank), {rank});
}

}  // namespace retinue
