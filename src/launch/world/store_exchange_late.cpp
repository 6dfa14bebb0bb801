#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/ranks_text.h"
#include "launch/world/late_wait.h"
#include "launch/world/store_exchange_parts.h"
#include "os/process/process_look.h"
#include "retinue/base/error.h"
#include "retinue/launch/store_exchange.h"
#include "retinue/os/detail/interrupt.h"
#include "retinue/os/detail/standard_error.h"
#include "store/find_value.h"

/// What a StoreExchange makes of ranks that don't come, stand still or die.
namespace retinue {
namespace {

using namespace std::chrono_literals;

/// After which who waits looks whether the others live, at first; then after times that double up to another.
constexpr std::chrono::nanoseconds kFirstLook = 250ms;
constexpr std::chrono::nanoseconds kLongestPause = 1s;
constexpr std::chrono::nanoseconds kLongestPausePerRank = 10ms;

/// During its lifetime a deadline is another one.
class LooksEnd {
 public:
  LooksEnd(Deadline& deadline, Deadline other) : deadline_(deadline), before_(std::exchange(deadline, other)) {}
  ~LooksEnd() { deadline_ = before_; }
  LooksEnd(const LooksEnd&) = delete;
  LooksEnd& operator=(const LooksEnd&) = delete;

 private:
  Deadline& deadline_;
  Deadline before_;
};

}  // namespace

std::vector<std::string> StoreExchange::await(const std::vector<std::string>& keys, Deadline deadline) {
  // A store that stands still answers none of the questions of a look: each would take its time, beyond the deadline.
  const LooksEnd end(looks_end_, deadline);
  return wait_with_reports(
      late_after_, deadline, [&](Deadline until) { return await_the_living(keys, until); },
      [&](const TimeoutError&, std::chrono::nanoseconds waited) {
        try {
          if (!deadline.passed()) report_late(waited, store_answers());
        } catch (const TimeoutError&) {
          // The store began to stand still in the middle of it: the next time.
        }
      });
}

std::vector<std::string> StoreExchange::await_the_living(const std::vector<std::string>& keys, Deadline deadline) {
  const auto longest_pause = std::max(kLongestPause, kLongestPausePerRank * meeting_.size);
  for (auto pause = kFirstLook;; pause = std::min(pause * 2, longest_pause)) {
    const Deadline look = Deadline::after(pause);
    if (look.when() >= deadline.when()) return store_.multi_get(keys, deadline);
    try {
      return store_.multi_get(keys, look);
    } catch (const TimeoutError&) {
      look_at_others(false);
    }
    if (detail::is_interrupted()) throw SystemError(group() + ": waiting for its ranks", EINTR);
  }
}

bool StoreExchange::store_answers() {
  try {
    joined(meeting_.rank, 0, soon());
    return true;
  } catch (const TimeoutError&) {
    return false;
  }
}

/// The process that is in this meeting as that rank, if one says so.
std::optional<StoreExchange::Arrival> StoreExchange::arrival(int rank) {
  const std::optional<std::string> said = find_value(store_, key_of_process(rank), patience());
  if (!said) return std::nullopt;
  const Arrival arrival = Arrival::of(*said);
  // Who says no number yet, or died before it did, comes to this one.
  return arrival.number == joined_ || arrival.number == 0 ? std::optional(arrival) : std::nullopt;
}

void StoreExchange::check_that_others_live() {
  look_at_others(true);
}

void StoreExchange::look_at_others(bool all) {
  std::optional<std::string> verdict;
  try {
    // Rank 0 looks at the others, and they at it alone, where it is of their host.
    verdict = find_verdict(!all && meeting_.rank != 0 && is_rank_0_here() ? 1 : meeting_.size);
    if (verdict && meeting_.rank == 0) {
      std::vector<int> others = those_there();
      if (verdict->starts_with(kLost)) std::erase(others, std::atoi(verdict->c_str() + 1));
      leave_together(others);
    }
  } catch (const std::exception&) {
    // The store stands still, or is gone, as the next call of it says.
  }
  if (verdict) throw_verdict(*verdict);
}

std::optional<std::string> StoreExchange::find_verdict(int end) {
  std::optional<std::string> verdict = find_value(store_, key("all"), patience());
  for (int rank = 0; rank < end && !verdict; ++rank) {
    const std::optional<Arrival> there = arrival(rank);
    if (!there || !there->is_here() || there->lives()) continue;
    const std::string text =
        fmt::format("{} at {}: rank {} (pid {}) has joined, and then died", group(), store_.name(), rank, there->pid());
    verdict = store_.compare_set(key("all"), "", fmt::format("{}{} {}", kLost, rank, text), soon());
  }
  return verdict && !verdict->starts_with(kAll) ? verdict : std::nullopt;
}

bool StoreExchange::is_rank_0_here() {
  const std::optional<Arrival> there = arrival(0);
  return there && there->is_here();
}

void StoreExchange::report_late(std::chrono::nanoseconds waited, bool store_answers) {
  std::string text = fmt::format("retinue: {}: rank {} of {} has waited {} in {}, at {}", group(), meeting_.rank,
                                 meeting_.size, seconds_text(waited), meeting_.call, store_.name());
  if (!store_answers) {
    text += ", which does not answer: is the process that serves it (usually rank 0) stopped?";
  } else {
    if (store_.add(key(fmt::format("report {}", reports_++)), 1, soon()) != 1) return;
    const std::vector<int> late = missing();
    if (late.empty()) return;
    text += fmt::format("\n  {} {} not {}", ranks_text(late), late.size() == 1 ? "has" : "have",
                        have_all_arrived(late) ? "continued, although all ranks have joined" : "joined yet");
    if (step_ == 0) text += twice_joined();
    for (std::size_t i = 0; i < std::min(late.size(), kNamedRanks); ++i)
      if (const std::optional<Arrival> there = arrival(late[i]))
        text += fmt::format("\n  rank {} is process {}{}", late[i], there->pid(),
                            there->is_here() ? standstill_clause(there->pid()) : " on another host");
  }
  write_standard_error(fmt::format("{}; {}\n", text, end_text(meeting_.deadline)));
}

/// Those that have given nothing to this step. Rank 0 does so when all others have: of it only this is known, or, in
/// the first step, whether it has come.
std::vector<int> StoreExchange::missing() {
  std::vector<int> missing;
  for (int rank = 1; rank < meeting_.size; ++rank)
    if (rank != meeting_.rank && !store_.check({key(std::to_string(rank))}, soon())) missing.push_back(rank);
  if (meeting_.rank == 0) return missing;
  const bool has_rank_0_come = step_ > 0 || joined(0, 0, soon()) >= joined_;
  if (!has_rank_0_come || missing.empty()) missing.insert(missing.begin(), 0);
  return missing;
}

bool StoreExchange::have_all_arrived(const std::vector<int>& late) {
  return step_ > 0 || (late.size() == 1 && late.front() == 0 && joined(0, 0, soon()) >= joined_);
}

/// Those that have given to this step.
std::vector<int> StoreExchange::those_there() {
  const std::vector<int> late = missing();
  std::vector<int> there;
  for (int rank = 1; rank < meeting_.size; ++rank)
    if (std::find(late.begin(), late.end(), rank) == late.end()) there.push_back(rank);
  return there;
}

void StoreExchange::fail_missing(bool was_over) {
  if (!store_answers())
    throw TimeoutError(
        fmt::format("{}: rank {} of {} timed out in {}, at {}, which does not answer: is the process that serves it "
                    "(usually rank 0) stopped?",
                    group(), meeting_.rank, meeting_.size, meeting_.call, store_.name()));
  const std::vector<int> late = was_over ? std::vector<int>() : missing();
  std::string text =
      was_over
          ? fmt::format("{}: rank {} of {} continued in {}, at {}, only after the timeout: was it stopped, or busy?",
                        group(), meeting_.rank, meeting_.size, meeting_.call, store_.name())
      : late.empty()
          ? fmt::format("{}: the timeout passed before all {} ranks had joined at {}", group(), meeting_.size,
                        store_.name())
          : fmt::format("{}: {} of {} did not {} in time at {}", group(), ranks_text(late), meeting_.size,
                        have_all_arrived(late) ? "continue, although all ranks had joined," : "join", store_.name());
  if (step_ == 0 && !was_over) text += twice_joined();
  if (meeting_.rank == 0) {
    const std::string verdict = store_.compare_set(key("all"), "", kMissing + text, soon());
    leave_together(those_there());
    throw_verdict(verdict);
  }
  throw TimeoutError(text);
}

std::string StoreExchange::twice_joined() {
  std::string text;
  for (int rank = 0; rank < meeting_.size; ++rank) {
    const std::int64_t times = joined(rank, 0, soon());
    if (times > joined_)
      text += fmt::format(
          "; rank {} has joined {} times, but rank {} has joined {}: do two processes have the same rank (RANK)?", rank,
          times, meeting_.rank, joined_);
  }
  return text;
}

}  // namespace retinue
