#include "collective/late_by_store.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "ipc/late_desk.h"
#include "os/process_calls.h"
#include "os/process_identity.h"
#include "retinue/base/error.h"
#include "retinue/store/store.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;

/// From the look for those that are missing to the report, so that who came just now has left word by then.
constexpr std::chrono::nanoseconds kFromSuspicionToReport = LateByStore::kFirstWord + 300ms;
constexpr std::chrono::nanoseconds kBetweenLooks = 1s;
/// The kernel closes what a process has open before it is seen to have ended.
constexpr auto kMoment = 200ms;
constexpr std::chrono::nanoseconds kPatience = 2s;  ///< With the store, in each call of it.
constexpr std::chrono::nanoseconds kAfterTrouble = 10s;
constexpr std::chrono::nanoseconds kNever = std::chrono::hours(24);

Deadline soon() {
  return Deadline::after(kPatience);
}

constexpr const char* kTimeout = "timeout";
std::string key_of_process(int rank) {
  return fmt::format("process {}", rank);
}
std::string key_of_wait(std::uint64_t sequence, int rank) {
  return fmt::format("{} waits {}", sequence, rank);
}
std::string key_of_activity(std::uint64_t sequence, int rank) {
  return fmt::format("{} activity {}", sequence, rank);
}

std::string name_of_host() {
  std::array<char, 65> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

std::chrono::nanoseconds wall_clock() {
  return std::chrono::system_clock::now().time_since_epoch();
}

/// Up to the separator, which goes, too.
std::string take_line(std::string& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string line = text.substr(0, end);
  text.erase(0, end + 1);
  return line;
}

}  // namespace

LateByStore::LateByStore(const EngineMembers& members, std::chrono::nanoseconds late_after)
    : store_(members.size > 1 ? members.store : nullptr),
      memory_(members.memory),
      group_(members.name),
      rank_(members.rank),
      size_(members.size),
      late_after_(late_after) {
  next_report_ = late_after_;
  if (!store_) return;
  try {
    store_->set(key_of_process(rank_),
                fmt::format("{}\n{}\npid {} on {}", members.host, getpid(), getpid(), name_of_host()), soon());
  } catch (const std::exception&) {
    store_ = nullptr;
  }
}

std::chrono::nanoseconds LateByStore::look(const Wait& wait) {
  if (!store_) return kNever;
  try {
    return std::min(look_now(wait), kBetweenLooks);
  } catch (const PeerLost&) {
    throw;
  } catch (const Closed&) {
    store_ = nullptr;
    return kNever;
  } catch (const std::exception&) {
    return kAfterTrouble;
  }
}

std::chrono::nanoseconds LateByStore::look_now(const Wait& wait) {
  const std::chrono::nanoseconds waited = Clock::now() - wait.since;
  const auto first_word = std::min(kFirstWord, wait.timeout / 2);
  if (waited < first_word) return first_word - waited;
  if (!has_left_word_) leave_word(wait);
  check_that_others_live(wait);
  if (late_after_ <= 0ns) return kNever;
  const auto suspect_after = std::max(next_report_ - kFromSuspicionToReport, 0ns);
  if (waited < suspect_after) return suspect_after - waited;
  if (suspected_after_ == 0ns) {
    suspects_ = missing(wait.sequence, others());
    tell_activities(wait, suspects_);
    suspected_after_ = waited;
  }
  const auto report_after = std::max(next_report_, suspected_after_ + kFromSuspicionToReport);
  if (waited < report_after) return report_after - waited;
  report(wait);
  next_report_ = waited * 2 + late_after_;
  suspected_after_ = 0ns;
  return next_report_ - kFromSuspicionToReport - waited;
}

void LateByStore::leave_word(const Wait& wait) {
  const std::string key = key_of_wait(wait.sequence, rank_);
  const auto began = wall_clock() - (Clock::now() - wait.since);
  own_keys_.emplace_back(wait.sequence, key);
  store_->set(key, fmt::format("{} {}\n{}", began.count(), (began + wait.timeout).count(), wait.own()), soon());
  has_left_word_ = true;
  for (const int rank : missing(wait.sequence, others_of_own_host()))
    first_looks_[process(rank).pid] = look_at_activity(process(rank).pid);
}

void LateByStore::check_that_others_live(const Wait& wait) {
  const std::vector<int> lost = missing(wait.sequence, ended_now());
  if (!lost.empty()) throw PeerLost(fmt::format("{} has ended", name_of(lost.front())), lost);
}

std::vector<int> LateByStore::ended_now() {
  std::vector<int> ended = others_of_own_host();
  std::erase_if(ended, [this](int rank) { return !has_ended(rank); });
  return ended;
}

std::vector<int> LateByStore::ended_ranks() noexcept {
  if (!store_) return {};
  try {
    const std::vector<int> here = others_of_own_host();
    std::vector<FileDescriptor> processes;
    std::vector<pollfd> ends;
    for (const int rank : here) {
      if (has_ended(rank)) continue;
      processes.push_back(open_pidfd(process(rank).pid));
      ends.push_back({.fd = processes.back().get(), .events = POLLIN, .revents = 0});
    }
    if (ends.size() == here.size()) poll(ends.data(), ends.size(), static_cast<int>(kMoment / 1ms));
    return ended_now();
  } catch (const std::exception&) {
    return {};
  }
}

void LateByStore::tell_activities(const Wait& wait, const std::vector<int>& late) {
  for (std::size_t i = 0; i < std::min(late.size(), kNamedMissing); ++i) {
    if (!is_of_own_host(late[i])) continue;
    const pid_t pid = process(late[i]).pid;
    const std::string key = key_of_activity(wait.sequence, late[i]);
    own_keys_.emplace_back(wait.sequence, key);
    store_->set(key, describe_activity(pid, first_looks_[pid], look_at_activity(pid)), soon());
  }
}

void LateByStore::report(const Wait& wait) {
  const std::vector<int> late = missing(wait.sequence, suspects_);
  if (late.empty()) return;
  const std::string key = fmt::format("{} report {}", wait.sequence, reports_++);
  if (store_->add(key, 1, soon()) != 1) return;
  own_keys_.emplace_back(wait.sequence, key);
  std::string text = wait.have_all_come ? late_head(group_, "a call takes long, to which all ranks have come")
                                        : late_head(group_, late);
  for (const std::string& line : words_of_waiting(wait, late)) text += line;
  const std::string_view state = wait.have_all_come ? "is through, or stopped in it" : "is missing";
  for (std::size_t i = 0; i < std::min(late.size(), kNamedMissing); ++i) {
    text += fmt::format("  rank {} ({}) {}, seen {}\n", late[i], process(late[i]).where, state, wait.history(late[i]));
    if (is_of_own_host(late[i]))
      text += activity_line(process(late[i]).pid);
    else if (const auto does = find(key_of_activity(wait.sequence, late[i])))
      text += fmt::format("    it {}\n", *does);
  }
  if (late.size() > kNamedMissing) text += fmt::format("  and {} more\n", late.size() - kNamedMissing);
  const std::chrono::nanoseconds waited = Clock::now() - wait.since;
  text += late_end(waited + late_after_, std::max(wait.timeout - waited, 0ns));
  if (!show_late_report(memory_.get(), text, first_looks_)) show_late_report(nullptr, text, first_looks_);
}

std::string LateByStore::missing_text(const Wait& wait, std::chrono::nanoseconds patience,
                                      const std::vector<int>& lost) noexcept {
  if (!store_) return {};
  try {
    if (!has_left_word_) leave_word(wait);
    std::vector<std::string> all;
    for (int rank = 0; rank < size_; ++rank)
      if (std::find(lost.begin(), lost.end(), rank) == lost.end() && !has_ended(rank))
        all.push_back(key_of_wait(wait.sequence, rank));
    try {
      store_->wait(all, Deadline::after(patience));
    } catch (const TimeoutError&) {
      // Then some of them are late.
    }
    const std::vector<int> late = missing(wait.sequence, others());
    if (late.empty()) return "; no rank is missing in this call: their bytes are";
    tell_activities(wait, late);
    std::string text = wait.have_all_come ? "; all came to this call; without a word are now: " : "; missing: ";
    for (std::size_t i = 0; i < std::min(late.size(), kNamedMissing); ++i) {
      const auto does = find(key_of_activity(wait.sequence, late[i]));
      text += fmt::format("{}rank {} ({}), seen {}{}", i == 0 ? "" : "; ", late[i], process(late[i]).where,
                          wait.history(late[i]), does ? ", which " + *does : "");
    }
    if (late.size() > kNamedMissing) text += fmt::format("; and {} more", late.size() - kNamedMissing);
    return text;
  } catch (const std::exception& error) {
    return fmt::format("; who is missing can't be told: {}", error.what());
  }
}

std::string LateByStore::agreed_timeout(const std::string& text) noexcept {
  if (!store_) return text;
  try {
    return store_->compare_set(kTimeout, "", text, soon());
  } catch (const std::exception&) {
    return text;
  }
}

std::string LateByStore::timeout_of_others(std::uint64_t sequence) noexcept {
  if (!store_) return {};
  try {
    if (const auto said = find(kTimeout)) return *said;
    // Its engine may have let go of the others before it says why; and it may be a call behind.
    if (!is_time_over(sequence) && !is_time_over(sequence - 1)) return {};
    return store_->get(kTimeout, Deadline::after(kFirstWord + kPatience));
  } catch (const std::exception&) {
    return {};
  }
}

bool LateByStore::is_time_over(std::uint64_t sequence) {
  constexpr std::chrono::nanoseconds kBetweenClocks = 500ms;
  for (const int rank : others()) {
    const std::optional<std::string> word = find(key_of_wait(sequence, rank));
    const std::size_t blank = word ? word->find(' ') : std::string::npos;
    if (blank == std::string::npos) continue;
    if (std::chrono::nanoseconds(std::strtoll(word->c_str() + blank, nullptr, 10)) < wall_clock() + kBetweenClocks)
      return true;
  }
  return false;
}

bool LateByStore::has_ended(int rank) {
  return rank != rank_ && is_of_own_host(rank) && identity_of_process(process(rank).pid).empty();
}

void LateByStore::withdraw(std::uint64_t sequence) noexcept {
  if (has_left_word_) {
    has_left_word_ = false;
    suspected_after_ = 0ns;
    next_report_ = late_after_;
    reports_ = 0;
    first_looks_.clear();
  }
  try {
    for (const auto& [call, key] : own_keys_)
      if (store_ && call < sequence) store_->delete_key(key, soon());
  } catch (const std::exception&) {
    // They lie there until the store ends, and are no other call's.
  }
  std::erase_if(own_keys_, [&](const auto& item) { return item.first < sequence; });
}

std::vector<int> LateByStore::missing(std::uint64_t sequence, const std::vector<int>& ranks) {
  std::vector<int> late;
  for (const int rank : ranks)
    if (!store_->check({key_of_wait(sequence, rank)}, soon())) late.push_back(rank);
  return late;
}

std::vector<int> LateByStore::others() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_) ranks.push_back(rank);
  return ranks;
}

std::vector<int> LateByStore::others_of_own_host() {
  std::vector<int> ranks = others();
  std::erase_if(ranks, [this](int rank) { return !is_of_own_host(rank); });
  return ranks;
}

std::vector<std::string> LateByStore::words_of_waiting(const Wait& wait, const std::vector<int>& missing) {
  std::vector<std::string> lines;
  for (int rank = 0; rank < size_; ++rank) {
    if (std::find(missing.begin(), missing.end(), rank) != missing.end()) continue;
    std::optional<std::string> text = find(key_of_wait(wait.sequence, rank));
    if (!text) continue;  // It came just now, and is no suspect.
    if (lines.size() == static_cast<std::size_t>(kNamedWaiting)) {
      lines.emplace_back("  and others wait\n");
      break;
    }
    const std::chrono::nanoseconds began(std::strtoll(take_line(*text).c_str(), nullptr, 10));
    // Clocks of hosts may differ.
    lines.push_back(fmt::format("  {} ({}), for {} now\n", *text, process(rank).where,
                                duration_text(std::max(wall_clock() - began, 0ns))));
  }
  return lines;
}

const LateByStore::Process& LateByStore::process(int rank) {
  if (processes_.empty()) {
    std::vector<std::string> keys;
    for (int other = 0; other < size_; ++other) keys.push_back(key_of_process(other));
    for (std::string text : store_->multi_get(keys, soon())) {
      Process one{.host = take_line(text)};
      one.pid = static_cast<pid_t>(std::strtol(take_line(text).c_str(), nullptr, 10));
      one.where = text;
      processes_.push_back(std::move(one));
    }
  }
  return processes_[static_cast<std::size_t>(rank)];
}

std::optional<std::string> LateByStore::find(const std::string& key) {
  if (!store_->check({key}, soon())) return std::nullopt;
  return store_->get(key, soon());
}

}  // namespace retinue
