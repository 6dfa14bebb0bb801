#include "retinue/launch/store_exchange.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "launch/world/store_exchange_parts.h"
#include "os/process/process_look.h"
#include "retinue/base/error.h"
#include "retinue/launch/join_group.h"
#include "retinue/os/detail/late_after.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;

/// How much longer the others wait, so that rank 0 is the one that says who is missing.
constexpr auto kGrace = 2s;
constexpr auto kPause = 1ms;

Deadline later(Deadline deadline, std::chrono::nanoseconds by) {
  return deadline.is_never() ? deadline : Deadline::after(deadline.left() + by);
}

StoreMeeting checked(StoreMeeting meeting) {
  if (!meeting.store)
    throw UsageError(fmt::format("group \"{}\": no store was given, and its ranks need one to meet", meeting.name));
  if (meeting.size < 1 || meeting.rank < 0 || meeting.rank >= meeting.size)
    throw UsageError(fmt::format("group \"{}\": rank {} of {} is not valid: ranks are 0 to size - 1", meeting.name,
                                 meeting.rank, meeting.size));
  return meeting;
}

}  // namespace

StoreExchange::StoreExchange(StoreMeeting meeting)
    : meeting_(checked(std::move(meeting))),
      store_(*meeting_.store),
      late_after_(late_after_of(meeting_.late_after)),
      joined_(join()),
      prefix_(prefix(joined_)) {
  try {
    agree_on_size();
  } catch (...) {
    leave();
    throw;
  }
}

StoreExchange::~StoreExchange() {
  leave();
}

std::string StoreExchange::group() const {
  return fmt::format("group \"{}\"", meeting_.name);
}

std::string StoreExchange::prefix(std::int64_t number) const {
  return fmt::format("retinue/{}/{}", meeting_.name, number);
}

std::string StoreExchange::key(const std::string& who) const {
  return fmt::format("{}/{}/{}", prefix_, step_, who);
}

std::string StoreExchange::key_of_process(int rank) const {
  return fmt::format("retinue/{}/process of {}", meeting_.name, rank);
}

std::string StoreExchange::key_of_reader(int rank) const {
  return key(fmt::format("{} has read", rank));
}

std::chrono::nanoseconds StoreExchange::patience() const {
  return looks_end_.left(kLastWords);
}

Deadline StoreExchange::soon() const {
  return Deadline::after(patience());
}

std::int64_t StoreExchange::joined(int rank, int more, Deadline deadline) {
  return store_.add(fmt::format("retinue/{}/joined by {}", meeting_.name, rank), more, deadline);
}

std::int64_t StoreExchange::join() {
  Arrival own{.identity = identity_of_process(getpid()), .host = host_of_this_process()};
  refuse_duplicate(own);
  const std::string before = own.text();
  try {
    own.number = joined(meeting_.rank, 1, meeting_.deadline);
    const std::string there = store_.compare_set(key_of_process(meeting_.rank), before, own.text(), meeting_.deadline);
    if (there != own.text()) {
      const std::string refusal = Arrival::of(there).refusal;
      if (!refusal.empty()) {
        fail_all(own.number, meeting_.size, refusal);
        throw UsageError(refusal);
      }
      store_.set(key_of_process(meeting_.rank), own.text(), meeting_.deadline);
    }
    return own.number;
  } catch (...) {
    leave();
    throw;
  }
}

void StoreExchange::refuse_duplicate(const Arrival& own) {
  const Deadline moment = soon();
  std::string expected;
  for (;;) {
    const std::string there =
        store_.compare_set(key_of_process(meeting_.rank), expected, own.text(), meeting_.deadline);
    if (there == own.text()) return;
    if (there == expected) {  // It was removed meanwhile.
      expected.clear();
      continue;
    }
    Arrival other = Arrival::of(there);
    if (!other.is_here() || other.identity == own.identity || !other.lives()) {
      expected = there;
      continue;
    }
    if (other.number == 0 && !moment.passed()) {
      std::this_thread::sleep_for(kPause);  // It is about to say which meeting it is in, unless it stands still.
      continue;
    }
    const std::string text = fmt::format(
        "{} at {}: process {} has joined as rank {}, and so has process {}: give each process its own rank (RANK)",
        group(), store_.name(), other.pid(), meeting_.rank, getpid());
    if (other.number != 0) {
      fail_all(other.number, meeting_.size, text);
    } else if (other.refusal.empty()) {  // It tells its meeting when it continues.
      other.refusal = text;
      if (store_.compare_set(key_of_process(meeting_.rank), there, other.text(), meeting_.deadline) != other.text())
        continue;
    }
    throw UsageError(text);
  }
}

void StoreExchange::leave() noexcept {
  try {
    store_.delete_key(key_of_process(meeting_.rank), soon());
  } catch (const std::exception&) {
    // The store is gone. Where it isn't, others find that this process has ended.
  }
}

void StoreExchange::agree_on_size() {
  const std::string own = fmt::format("{} ranks, as rank {}", meeting_.size, meeting_.rank);
  const std::string first = store_.compare_set(prefix_ + "/size", "", own, meeting_.deadline);
  const int others_size = std::atoi(first.c_str());
  if (others_size == meeting_.size) return;
  const std::string text = fmt::format(
      "{} at {}: one process has a world of {}, and another has {}: give all processes the same world size "
      "(WORLD_SIZE)",
      group(), store_.name(), own, first);
  const int size = std::max(meeting_.size, others_size);
  fail_all(joined_, size, text);
  std::vector<int> there;
  for (int rank = 1; meeting_.rank == 0 && rank < size; ++rank)
    if (rank < meeting_.size || joined(rank, 0, meeting_.deadline) >= joined_) there.push_back(rank);
  leave_together(there);
  throw UsageError(text);
}

void StoreExchange::fail_all(std::int64_t number, int size, const std::string& text) {
  // Rank 0 waits for as many as it counts, the others for what it makes of that.
  const std::string first_step = prefix(number) + "/0/";
  try {
    store_.compare_set(first_step + "all", "", kMisfit + text, meeting_.deadline);
    for (int rank = 1; rank < size; ++rank)
      store_.compare_set(first_step + std::to_string(rank), "", kMisfit + text, meeting_.deadline);
  } catch (const Closed&) {
    // Rank 0, who was told, has ended for it.
  }
}

std::vector<std::string> StoreExchange::keys_of_others() const {
  std::vector<std::string> keys;
  for (int rank = 1; rank < meeting_.size; ++rank) keys.push_back(key(std::to_string(rank)));
  return keys;
}

void StoreExchange::leave_together() noexcept {
  std::vector<int> others;
  for (int rank = 1; rank < meeting_.size; ++rank) others.push_back(rank);
  leave_together(others);
}

void StoreExchange::leave_together(const std::vector<int>& others) noexcept {
  try {
    if (meeting_.rank != 0) return store_.set(key_of_reader(meeting_.rank), "", soon());
    std::vector<std::string> keys;
    for (const int rank : others) keys.push_back(key_of_reader(rank));
    if (!keys.empty()) store_.wait(keys, kLastWords);
  } catch (const std::exception&) {
    // Somebody ended meanwhile, or stands still.
  }
}

std::vector<std::string> StoreExchange::finish() noexcept {
  std::vector<std::string> keys;
  try {
    if (meeting_.rank != 0) store_.set(key_of_reader(meeting_.rank), "", soon());
    for (int rank = 1; meeting_.rank == 0 && rank < meeting_.size; ++rank) keys.push_back(key_of_reader(rank));
  } catch (const std::exception&) {
    // Rank 0 has waited for long enough.
  }
  return keys;
}

std::string StoreExchange::combine(std::string own) {
  const std::size_t bytes = own.size();
  const bool was_over = meeting_.deadline.passed();
  std::string all = std::move(own);
  std::vector<std::string> values;
  try {
    values = await(keys_of_others(), meeting_.deadline);
  } catch (const TimeoutError&) {
    fail_missing(was_over);
  }
  std::string misfit;
  std::vector<int> there;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int rank = static_cast<int>(i) + 1;
    const bool fits = values[i].starts_with(kAll);
    const std::string value = values[i].substr(1);
    if (fits || values[i].starts_with(kMisfit)) there.push_back(rank);  // Told for it: it may be about to come.
    all += value;
    if (!misfit.empty() || (fits && value.size() == bytes)) continue;
    misfit = fits ? fmt::format("{}: rank {} sent {} bytes, but rank 0 sent {}: do all ranks run the same program?",
                                group(), rank, value.size(), bytes)
                  : value;
  }
  const std::string verdict = misfit.empty() ? kAll + all : kMisfit + misfit;
  const std::string given = store_.compare_set(key("all"), "", verdict, meeting_.deadline);
  if (given.starts_with(kAll)) return all;
  leave_together(there);
  throw_verdict(given);
}

std::string StoreExchange::take(const std::string& own) {
  store_.set(key(std::to_string(meeting_.rank)), kAll + own, meeting_.deadline);
  std::string all;
  try {
    all = await({key("all")}, later(meeting_.deadline, kGrace)).front();
  } catch (const TimeoutError&) {
    fail_missing();
  }
  if (all.starts_with(kAll)) return all.substr(1);
  leave_together();
  throw_verdict(all);
}

void StoreExchange::throw_verdict(const std::string& verdict) {
  const std::string text = verdict.empty() ? "" : verdict.substr(1);
  if (verdict.starts_with(kMissing)) throw TimeoutError(text);
  if (verdict.starts_with(kLost)) throw PeerLost(text.substr(text.find(' ') + 1), {std::atoi(text.c_str())});
  throw UsageError(text);
}

void StoreExchange::all_gather(const void* own, void* all, std::size_t bytes) {
  std::string mine(static_cast<const char*>(own), bytes);
  const std::string values = meeting_.rank == 0 ? combine(std::move(mine)) : take(mine);
  const std::size_t wanted = bytes * static_cast<std::size_t>(meeting_.size);
  if (values.size() != wanted)
    throw UsageError(fmt::format("{}: rank 0 sent {} bytes, but rank {} expects {}: do all ranks run the same program?",
                                 group(), values.size(), meeting_.rank, wanted));
  std::memcpy(all, values.data(), wanted);
  ++step_;
  reports_ = 0;
}

}  // namespace retinue
