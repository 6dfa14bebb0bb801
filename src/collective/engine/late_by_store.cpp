#include "collective/engine/late_by_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <utility>

#include "base/ranks_text.h"
#include "ipc/memory/late_mailbox.h"
#include "retinue/base/error.h"
#include "retinue/store/store.h"
#include "store/find_value.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;

/// From the look for those that are missing to the report, so that who came just now has left word by then.
constexpr std::chrono::nanoseconds kFromSuspicionToReport = LateByStore::kFirstWord + 300ms;
constexpr std::chrono::nanoseconds kBetweenLooks = RanksByStore::kBetweenLooks;
constexpr auto kPatience = RanksByStore::kPatience;
constexpr auto kAfterTrouble = RanksByStore::kAfterTrouble;
constexpr std::chrono::nanoseconds kNever = std::chrono::hours(24);

Deadline soon() {
  return Deadline::after(kPatience);
}

constexpr const char* kTimeout = "timeout";
std::string key_of_wait(std::uint64_t sequence, int rank) {
  return fmt::format("{} waits {}", sequence, rank);
}
std::string key_of_activity(std::uint64_t sequence, int rank) {
  return fmt::format("{} activity {}", sequence, rank);
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
    ranks_.emplace(members);
  } catch (const std::exception&) {
    store_ = nullptr;
  }
}

std::chrono::nanoseconds LateByStore::look(const Wait& wait) {
  if (!ranks_) return kNever;
  const std::chrono::nanoseconds waited = Clock::now() - wait.since;
  const auto first_word = std::min(kFirstWord, wait.timeout / 2);
  if (waited < first_word) return std::min(first_word - waited, kBetweenLooks);
  try {
    if (store_) return std::min(look_now(wait, waited), kBetweenLooks);
  } catch (const PeerLost&) {
    throw;
  } catch (const Closed&) {
    store_ = nullptr;
  } catch (const TimeoutError&) {
    check_without_store(wait);
    return kAfterTrouble;
  } catch (const std::exception&) {
    return kAfterTrouble;
  }
  check_without_store(wait);
  return kBetweenLooks;
}

void LateByStore::check_without_store(const Wait& wait) {
  if (wait.have_all_come) return;  // Who has ended may have been through.
  const std::vector<int> lost = ranks_->ended_as_known();
  if (lost.empty()) return;
  store_ = nullptr;
  throw PeerLost(ranks_->text_of_ended(lost), lost);
}

std::chrono::nanoseconds LateByStore::look_now(const Wait& wait, std::chrono::nanoseconds waited) {
  if (!has_published_word_) publish_word(wait);
  ranks_->take_loss_of_others();
  check_that_others_live(wait);
  if (late_after_ <= 0ns) return kNever;
  const auto suspect_after = std::max(next_report_ - kFromSuspicionToReport, 0ns);
  if (waited < suspect_after) return suspect_after - waited;
  if (suspected_after_ == 0ns) {
    suspects_ = missing(wait.sequence, ranks_->others());
    post_activities(wait, suspects_);
    suspected_after_ = waited;
  }
  const auto report_after = std::max(next_report_, suspected_after_ + kFromSuspicionToReport);
  if (waited < report_after) return report_after - waited;
  report(wait);
  next_report_ = waited * 2 + late_after_;
  suspected_after_ = 0ns;
  return next_report_ - kFromSuspicionToReport - waited;
}

void LateByStore::publish_word(const Wait& wait) {
  began_ = wall_clock() - (Clock::now() - wait.since);
  own_text_ = wait.own();
  own_keys_.emplace_back(wait.sequence, key_of_wait(wait.sequence, rank_));
  set_word(wait.sequence, began_ + wait.timeout);
  has_published_word_ = true;
  for (const int rank : missing(wait.sequence, ranks_->others_of_own_host()))
    first_looks_[ranks_->pid(rank)] = look_at_activity(ranks_->pid(rank));
}

void LateByStore::set_word(std::uint64_t sequence, std::chrono::nanoseconds end) {
  store_->set(key_of_wait(sequence, rank_), fmt::format("{} {}\n{}", began_.count(), end.count(), own_text_), soon());
}

void LateByStore::check_that_others_live(const Wait& wait) {
  const std::vector<int> lost = missing(wait.sequence, ranks_->ended(wait.sequence));
  if (!lost.empty()) tell_loss(lost, wait);
}

void LateByStore::tell_loss(const std::vector<int>& lost, const Wait& wait) {
  ranks_->tell_loss(lost, [&](std::vector<int> others) {
    for (const int rank : missing(wait.sequence, others)) std::erase(others, rank);
    return others;
  });
}

std::optional<PeerLost> LateByStore::agreed_loss(const Wait& wait, bool looks) noexcept {
  if (!ranks_) return std::nullopt;
  try {
    if (store_) ranks_->take_loss_of_others();
  } catch (const PeerLost& error) {
    return error;
  } catch (const std::exception&) {
    // The store has ended. What is known of processes tells as much.
  }
  if (!looks || (!store_ && wait.have_all_come)) return std::nullopt;
  std::vector<int> lost;
  try {
    lost = ranks_->ended_soon(wait.sequence);
    if (store_ && !lost.empty()) tell_loss(lost, wait);
  } catch (const PeerLost& error) {
    return error;
  } catch (const std::exception&) {
    // Nobody can be told.
  }
  return lost.empty() ? std::nullopt : std::optional(PeerLost(ranks_->text_of_ended(lost), lost));
}

bool LateByStore::has_left(int rank, const Wait& wait) noexcept {
  const std::optional<bool> has_left = store_ ? ranks_->has_left_after(rank, wait.sequence) : std::nullopt;
  // Where nobody can be asked, who left may be the rank that served the store.
  return has_left.value_or(wait.have_all_come);
}

void LateByStore::leave(std::uint64_t calls) noexcept {
  try {
    if (store_) ranks_->leave(calls);
  } catch (const std::exception&) {
    // Then nobody can say of it that it left.
  }
}

void LateByStore::post_activities(const Wait& wait, const std::vector<int>& late) {
  for (std::size_t i = 0; i < std::min(late.size(), kNamedMissing); ++i) {
    if (!ranks_->is_of_own_host(late[i])) continue;
    const pid_t pid = ranks_->pid(late[i]);
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
  std::string text = wait.have_all_come ? late_head(group_, "a call takes long, although all ranks have started it")
                                        : late_head(group_, late);
  for (const std::string& line : words_of_waiting(wait, late)) text += line;
  const std::string_view state = wait.have_all_come ? "has finished the call, or stopped in it" : "is missing";
  for (std::size_t i = 0; i < std::min(late.size(), kNamedMissing); ++i) {
    text += fmt::format("  rank {} ({}) {}, seen {}\n", late[i], ranks_->where(late[i]), state, wait.history(late[i]));
    if (ranks_->is_of_own_host(late[i]))
      text += activity_line(ranks_->pid(late[i]));
    else if (const auto does = find(key_of_activity(wait.sequence, late[i])))
      text += fmt::format("    it {}\n", *does);
  }
  if (late.size() > kNamedMissing) text += fmt::format("  {}: the same\n", ranks_behind(late, kNamedMissing));
  const std::chrono::nanoseconds waited = Clock::now() - wait.since;
  text += late_end(waited + late_after_, std::max(wait.timeout - waited, 0ns));
  if (!show_late_report(memory_.get(), text, first_looks_)) show_late_report(nullptr, text, first_looks_);
}

std::string LateByStore::missing_text(const Wait& wait, std::chrono::nanoseconds patience,
                                      const std::vector<int>& lost) noexcept {
  if (!store_) return {};
  try {
    if (!has_published_word_) publish_word(wait);
    std::vector<std::string> all;
    for (int rank = 0; rank < size_; ++rank)
      if (std::find(lost.begin(), lost.end(), rank) == lost.end() && !ranks_->has_ended(rank))
        all.push_back(key_of_wait(wait.sequence, rank));
    try {
      store_->wait(all, Deadline::after(patience));
    } catch (const TimeoutError&) {
      // Then some of them are late.
    }
    const std::vector<int> late = missing(wait.sequence, ranks_->others());
    if (late.empty()) return "; no rank is missing in this call, but some of their data is";
    post_activities(wait, late);
    std::string text = wait.have_all_come ? "; all ranks started this call; no longer waiting in it: " : "; missing: ";
    for (std::size_t i = 0; i < std::min(late.size(), kNamedMissing); ++i) {
      const auto does = find(key_of_activity(wait.sequence, late[i]));
      text += fmt::format("{}rank {} ({}), seen {}{}", i == 0 ? "" : "; ", late[i], ranks_->where(late[i]),
                          wait.history(late[i]), does ? ", which " + *does : "");
    }
    if (late.size() > kNamedMissing) text += "; and " + ranks_behind(late, kNamedMissing);
    return text;
  } catch (const std::exception& error) {
    return fmt::format("; can't find out which ranks are missing: {}", error.what());
  }
}

std::string LateByStore::agreed_timeout(const std::string& text) noexcept {
  return ask(text, [&] { return store_->compare_set(kTimeout, "", text, soon()); });
}

std::string LateByStore::timeout_of_others(std::uint64_t sequence) noexcept {
  return ask(std::string(), [&] {
    if (const auto said = find(kTimeout)) return *said;
    // Its engine may have let go of the others before it says why; and it may be a call behind.
    if (!is_time_over(sequence) && !is_time_over(sequence - 1)) return std::string();
    return store_->get(kTimeout, Deadline::after(kFirstWord + kPatience));
  });
}

bool LateByStore::is_time_over(std::uint64_t sequence) {
  constexpr std::chrono::nanoseconds kBetweenClocks = 500ms;
  for (const int rank : ranks_->others()) {
    const std::optional<std::string> word = find(key_of_wait(sequence, rank));
    const std::size_t blank = word ? word->find(' ') : std::string::npos;
    if (blank == std::string::npos) continue;
    if (std::chrono::nanoseconds(std::strtoll(word->c_str() + blank, nullptr, 10)) < wall_clock() + kBetweenClocks)
      return true;
  }
  return false;
}

void LateByStore::withdraw(std::uint64_t sequence) noexcept {
  const bool had_published_word = std::exchange(has_published_word_, false);
  suspected_after_ = 0ns;
  next_report_ = late_after_;
  reports_ = 0;
  first_looks_.clear();
  try {
    // That this rank came others may still want to know; its time is never over now.
    if (store_ && had_published_word) set_word(sequence, std::chrono::nanoseconds::max());
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

std::vector<std::string> LateByStore::words_of_waiting(const Wait& wait, const std::vector<int>& missing) {
  std::vector<std::string> lines;
  for (int rank = 0; rank < size_; ++rank) {
    if (std::find(missing.begin(), missing.end(), rank) != missing.end()) continue;
    std::optional<std::string> text = find(key_of_wait(wait.sequence, rank));
    if (!text) continue;  // It came just now, and is no suspect.
    if (lines.size() == kNamedWaiting) {
      lines.emplace_back("  other ranks wait, too\n");
      break;
    }
    const std::chrono::nanoseconds began(std::strtoll(take_line(*text).c_str(), nullptr, 10));
    // Clocks of hosts may differ.
    lines.push_back(fmt::format("  {} ({}), for {} now\n", *text, ranks_->where(rank),
                                duration_text(std::max(wall_clock() - began, 0ns))));
  }
  return lines;
}

std::optional<std::string> LateByStore::find(const std::string& key) {
  return find_value(*store_, key, kPatience);
}

}  // namespace retinue
