#include "retinue/progress/step_timer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "ipc/memory/job_layout.h"
#include "ipc/memory/process_table.h"
#include "ipc/records/flight_recorder.h"
#include "ipc/records/progress_record.h"
#include "os/sync/clock.h"
#include "progress/waits_for_ranks.h"
#include "retinue/base/error.h"
#include "retinue/ipc/detail/blocked_time.h"

namespace retinue {
namespace {

using std::chrono::nanoseconds;

StepTimes step_times_of(const StepSums& sums) {
  return {.steps = sums.steps,
          .total = nanoseconds(sums.total_ns),
          .data = nanoseconds(sums.data_ns),
          .compute = nanoseconds(sums.compute_ns),
          .waiting = nanoseconds(sums.waiting_ns),
          .communication = nanoseconds(sums.communication_ns)};
}

StepSums sums_of(const StepTimes& times) {
  const auto ns = [](nanoseconds time) { return static_cast<std::uint64_t>(time.count()); };
  return {.steps = times.steps,
          .total_ns = ns(times.total),
          .data_ns = ns(times.data),
          .compute_ns = ns(times.compute),
          .waiting_ns = ns(times.waiting),
          .communication_ns = ns(times.communication)};
}

void add_times(StepTimes& to, const StepTimes& times, int sign = 1) {
  to.steps += static_cast<std::uint64_t>(sign) * times.steps;
  for (const auto part :
       {&StepTimes::total, &StepTimes::data, &StepTimes::compute, &StepTimes::waiting, &StepTimes::communication})
    to.*part += sign * (times.*part);
}

struct StepPart {
  const char* name;
  nanoseconds StepTimes::*part;
};
constexpr StepPart kStepParts[] = {{"total", &StepTimes::total},
                                   {"data", &StepTimes::data},
                                   {"compute", &StepTimes::compute},
                                   {"waiting", &StepTimes::waiting},
                                   {"communication", &StepTimes::communication}};

double seconds_per_step(const StepTimes& times, const StepPart& part) {
  return std::chrono::duration<double>(times.*part.part).count() / static_cast<double>(times.steps);
}

int rank_of_slot(const ProcessSlot& slot) {
  return slot.world_size.load(std::memory_order_relaxed) > 0 ? slot.world_rank.load(std::memory_order_relaxed)
                                                             : slot.rank;
}

/// Keeps what detail::blocked_times points to: the timer may be destroyed on another thread.
struct ThreadTimes {
  ThreadTimes() = default;
  ~ThreadTimes() { let_go(); }
  ThreadTimes(const ThreadTimes&) = delete;
  ThreadTimes& operator=(const ThreadTimes&) = delete;

  void keep(const std::shared_ptr<detail::BlockedTimes>& given) {
    times = given;
    detail::blocked_times = given.get();
  }
  void let_go() {
    detail::blocked_times = nullptr;
    times.reset();
  }
  bool has_timer() const { return times.use_count() > 1 && !times->is_of_parent(); }

  std::shared_ptr<detail::BlockedTimes> times = {};
};

thread_local ThreadTimes thread_times;

}  // namespace

class StepTimer::Impl {
 public:
  Impl() {
    if (thread_times.has_timer())
      throw UsageError("StepTimer: this thread has a StepTimer already; use that one, or destroy it first");
    follow_recorders();
    thread_times.keep(blocked_);  // After what can throw: there is no destructor then.
    begun_ns_ = monotonic_ns();
  }
  ~Impl() {
    if (thread_times.times == blocked_) thread_times.let_go();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void data_loaded() {
    const std::uint64_t taken = monotonic_ns() - begun_ns_;
    data_ns_ = taken - std::min(taken, blocked_->sum_ns());
  }

  StepTimes step() {
    const std::uint64_t now = monotonic_ns();
    follow_recorders();
    Intervals waits;
    for (WaitsForRanks& each : waits_) {
      const Intervals some = each.look();
      waits.insert(waits.end(), some.begin(), some.end());
    }
    const std::uint64_t total = now - begun_ns_;
    const std::uint64_t blocked = std::min(blocked_->sum_ns(), total - data_ns_);
    const std::uint64_t waiting = std::min(blocked, overlap_ns(blocked_->intervals(), std::move(waits)));
    const StepTimes times{.steps = 1,
                          .total = nanoseconds(total),
                          .data = nanoseconds(data_ns_),
                          .compute = nanoseconds(total - data_ns_ - blocked),
                          .waiting = nanoseconds(waiting),
                          .communication = nanoseconds(blocked - waiting)};
    blocked_->clear();
    data_ns_ = 0;
    begun_ns_ = now;
    add_times(sum_, times);
    if (const auto memory = own_memory()) tell_step_sums(*memory, sums_of(sum_));
    return times;
  }

  const StepTimes& sum() const { return sum_; }

  std::vector<RankStepTimes> sums_of_ranks() const {
    const auto memory = own_memory();
    if (memory == nullptr) return {{.rank = 0, .times = sum_}};
    const std::uint32_t context = process_slot(*memory, memory->own_slot()).context;
    std::vector<RankStepTimes> ranks;
    const std::uint32_t end = std::min(kMaxProcesses, memory->header().process_end.load(std::memory_order_acquire));
    for (std::uint32_t index = 0; index < end; ++index) {
      const ProcessSlot& slot = process_slot(*memory, index);
      if (slot.progress.load(std::memory_order_acquire) == 0 || slot.context != context) continue;
      if (const auto progress = read_progress(*memory, index); progress && progress->sums.steps > 0)
        ranks.push_back({.rank = rank_of_slot(slot), .times = step_times_of(progress->sums)});
    }
    std::ranges::sort(ranks, {}, &RankStepTimes::rank);
    return ranks;
  }

  void log(SummaryWriter& writer, std::int64_t step) {
    StepTimes own = sum_;
    add_times(own, logged_, -1);
    if (own.steps == 0) return;
    for (const StepPart& part : kStepParts)
      writer.add_scalar(fmt::format("step_time/{}", part.name), seconds_per_step(own, part), step);
    logged_ = sum_;
    log_ranks(writer, step);
  }

 private:
  /// Of the job of this process, or else of its first group; null where it has a slot in neither.
  std::shared_ptr<JobMemory> own_memory() const {
    const auto is_own = [](const JobMemory& memory) {
      return memory.own_slot() != JobMemory::kNoSlot && memory.is_of_this_process();
    };
    if (JobMemory::current_or_null() != nullptr && is_own(*JobMemory::current())) return JobMemory::current();
    return waits_.empty() ? nullptr : waits_.front().memory();
  }

  /// Ranks that have made steps since the last time.
  std::vector<RankStepTimes> take_new_steps_of_ranks() {
    std::vector<RankStepTimes> ranks = sums_of_ranks();
    for (RankStepTimes& each : ranks) {
      const StepTimes before = std::exchange(logged_of_ranks_[each.rank], each.times);
      // A rank that was started anew counts from 0 again.
      if (before.steps <= each.times.steps && before.total <= each.times.total) add_times(each.times, before, -1);
    }
    std::erase_if(ranks, [](const RankStepTimes& each) { return each.times.steps == 0; });
    return ranks;
  }

  void log_ranks(SummaryWriter& writer, std::int64_t step) {
    const std::vector<RankStepTimes> ranks = take_new_steps_of_ranks();
    if (ranks.size() < 2) return;
    for (const StepPart& part : kStepParts) {
      double min = seconds_per_step(ranks.front().times, part);
      double max = min;
      double sum = 0;
      for (const RankStepTimes& each : ranks) {
        const double seconds = seconds_per_step(each.times, part);
        min = std::min(min, seconds);
        max = std::max(max, seconds);
        sum += seconds;
      }
      writer.add_scalar(fmt::format("step_time_min/{}", part.name), min, step);
      writer.add_scalar(fmt::format("step_time_mean/{}", part.name), sum / static_cast<double>(ranks.size()), step);
      writer.add_scalar(fmt::format("step_time_max/{}", part.name), max, step);
    }
    const auto slowest = std::ranges::max_element(ranks, {}, [](const RankStepTimes& each) {
      return (each.times.compute + each.times.data) / static_cast<double>(each.times.steps);
    });
    writer.add_scalar("step_time/slowest_rank", slowest->rank, step);
  }

  /// Groups may have been made since, also of ranks that share another memory.
  void follow_recorders() {
    std::erase_if(waits_, [](const WaitsForRanks& each) { return !each.memory()->is_of_this_process(); });
    for (const std::shared_ptr<JobMemory>& memory : FlightRecorder::memories_of_this_process())
      if (std::ranges::none_of(waits_, [&](const WaitsForRanks& each) { return each.memory() == memory; }))
        waits_.emplace_back(memory);
  }

  const std::shared_ptr<detail::BlockedTimes> blocked_ = std::make_shared<detail::BlockedTimes>();
  std::vector<WaitsForRanks> waits_;
  std::uint64_t begun_ns_ = 0;
  std::uint64_t data_ns_ = 0;
  StepTimes sum_;
  StepTimes logged_;
  std::map<int, StepTimes> logged_of_ranks_;
};

StepTimer::StepTimer() : impl_(std::make_unique<Impl>()) {}
StepTimer::~StepTimer() = default;

void StepTimer::data_loaded() {
  impl_->data_loaded();
}

StepTimes StepTimer::step() {
  return impl_->step();
}

const StepTimes& StepTimer::sum() const noexcept {
  return impl_->sum();
}

std::vector<RankStepTimes> StepTimer::sums_of_ranks() const {
  return impl_->sums_of_ranks();
}

void StepTimer::log(SummaryWriter& writer, std::int64_t global_step) {
  impl_->log(writer, global_step);
}

}  // namespace retinue
