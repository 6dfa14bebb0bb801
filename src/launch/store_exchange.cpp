#include "retinue/launch/store_exchange.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "launch/late_wait.h"
#include "os/late_after.h"
#include "os/process_identity.h"
#include "retinue/base/error.h"
#include "retinue/launch/join_group.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;

/// How much longer the others wait, so that rank 0 is the one that says who is missing.
constexpr auto kGrace = 2s;
/// For what is asked when the time is over already.
constexpr auto kLastWords = 2s;
constexpr std::size_t kNamedRanks = 16;

/// What a value begins with: data, or why there are none. Rank 0's are of all.
constexpr char kAll = 'v';
constexpr char kMissing = 'm';
constexpr char kMisfit = 'u';

Deadline later(Deadline deadline, std::chrono::nanoseconds by) {
  return deadline.is_never() ? deadline : Deadline::after(deadline.left() + by);
}

Deadline soon() {
  return Deadline::after(kLastWords);
}

std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const std::size_t named = std::min(ranks.size(), kNamedRanks);
  for (std::size_t i = 0; i < named; ++i) text += fmt::format("{}{}", i > 0 ? ", " : "", ranks[i]);
  if (named < ranks.size()) text += fmt::format(" and {} more", ranks.size() - named);
  return text;
}

StoreMeeting checked(StoreMeeting meeting) {
  if (!meeting.store) throw UsageError(fmt::format("group \"{}\": its ranks have no store to meet at", meeting.name));
  if (meeting.size < 1 || meeting.rank < 0 || meeting.rank >= meeting.size)
    throw UsageError(fmt::format("group \"{}\": rank {} of {}", meeting.name, meeting.rank, meeting.size));
  return meeting;
}

/// A process that is in a meeting, as it says at the store.
struct Comer {
  std::string identity = {};
  std::int64_t number = 0;  ///< Of the meeting.
  std::string host = {};

  std::string text() const { return fmt::format("{}\n{}\n{}", identity, number, host); }
  static Comer of(const std::string& text) {
    Comer comer;
    std::istringstream lines(text);
    std::string number;
    std::getline(lines, comer.identity);
    std::getline(lines, number);
    std::getline(lines, comer.host);
    comer.number = std::atoll(number.c_str());
    return comer;
  }

  /// Whether that is another process of this one's host, and lives.
  bool is_another_than(const Comer& own) const {
    return host == own.host && identity != own.identity && identity_of_process(pid()) == identity;
  }
  pid_t pid() const { return std::atoi(identity.c_str()); }
};

}  // namespace

StoreExchange::StoreExchange(StoreMeeting meeting)
    : meeting_(checked(std::move(meeting))),
      store_(*meeting_.store),
      late_after_(meeting_.late_after ? *meeting_.late_after : default_late_after()),
      joined_(joined(meeting_.rank, 1, meeting_.deadline)),
      prefix_(prefix(joined_)) {
  be_the_only_one();
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

std::string StoreExchange::key_of_process() const {
  return fmt::format("retinue/{}/process of {}", meeting_.name, meeting_.rank);
}

std::int64_t StoreExchange::joined(int rank, int more, Deadline deadline) {
  return store_.add(fmt::format("retinue/{}/joined by {}", meeting_.name, rank), more, deadline);
}

void StoreExchange::be_the_only_one() {
  const Comer own{.identity = identity_of_process(getpid()), .number = joined_, .host = host_of_this_process()};
  std::string expected;
  for (;;) {
    const std::string there = store_.compare_set(key_of_process(), expected, own.text(), meeting_.deadline);
    if (there == own.text()) return;
    if (there == expected) {  // It was removed meanwhile.
      expected.clear();
      continue;
    }
    if (const Comer other = Comer::of(there); other.is_another_than(own)) {
      const std::string text = fmt::format(
          "{} at {}: process {} has come as rank {}, and so has process {}: two processes give that rank (RANK)",
          group(), store_.name(), other.pid(), meeting_.rank, getpid());
      tell_all(other.number, meeting_.size, text);
      joined(meeting_.rank, -1, meeting_.deadline);
      throw UsageError(text);
    }
    expected = there;
  }
}

void StoreExchange::leave() noexcept {
  try {
    store_.delete_key(key_of_process(), soon());
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
      "{} at {}: a process came that counts {}, and another {} says: all must give the same world size (WORLD_SIZE)",
      group(), store_.name(), own, first);
  const int size = std::max(meeting_.size, others_size);
  tell_all(joined_, size, text);
  std::vector<int> there;
  for (int rank = 1; meeting_.rank == 0 && rank < size; ++rank)
    if (joined(rank, 0, meeting_.deadline) >= joined_) there.push_back(rank);
  leave_together(there);
  throw UsageError(text);
}

void StoreExchange::tell_all(std::int64_t number, int size, const std::string& text) {
  // Rank 0 waits for as many as it counts, the others for what it makes of that.
  const std::string first_step = prefix(number) + "/0/";
  store_.compare_set(first_step + "all", "", kMisfit + text, meeting_.deadline);
  for (int rank = 1; rank < size; ++rank)
    store_.compare_set(first_step + std::to_string(rank), "", kMisfit + text, meeting_.deadline);
}

std::string StoreExchange::twice_joined() {
  std::string text;
  for (int rank = 0; rank < meeting_.size; ++rank) {
    const std::int64_t times = joined(rank, 0, soon());
    if (times > joined_)
      text +=
          fmt::format("; rank {} has come {} times where rank {} has come {}: do two processes give that rank (RANK)?",
                      rank, times, meeting_.rank, joined_);
  }
  return text;
}

std::vector<std::string> StoreExchange::keys_of_others() const {
  std::vector<std::string> keys;
  for (int rank = 1; rank < meeting_.size; ++rank) keys.push_back(key(std::to_string(rank)));
  return keys;
}

std::vector<std::string> StoreExchange::await(const std::vector<std::string>& keys, Deadline deadline) {
  return wait_with_reports(
      late_after_, deadline, [&](Deadline look) { return store_.multi_get(keys, look); },
      [&](const TimeoutError& /*error*/, std::chrono::nanoseconds waited) { report_late(waited); });
}

void StoreExchange::report_late(std::chrono::nanoseconds waited) {
  std::string text = fmt::format("retinue: {}: rank {} of {} has waited {} in {}, at {}", group(), meeting_.rank,
                                 meeting_.size, seconds_text(waited), meeting_.call, store_.name());
  try {
    if (store_.add(key(fmt::format("report {}", reports_++)), 1, soon()) != 1) return;
    const std::vector<int> late = missing();
    if (late.empty()) return;
    text += fmt::format("\n  {} {} not {}", list_of(late), late.size() == 1 ? "has" : "have",
                        have_all_come(late) ? "gone on, though all had come" : "come there");
    if (step_ == 0) text += twice_joined();
  } catch (const TimeoutError&) {
    text += ", which does not answer: is the process that serves it stopped?";
  }
  std::fprintf(stderr, "%s; %s\n", text.c_str(), end_text(meeting_.deadline).c_str());
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

bool StoreExchange::have_all_come(const std::vector<int>& late) {
  return step_ > 0 || (late.size() == 1 && late.front() == 0 && joined(0, 0, soon()) >= joined_);
}

void StoreExchange::fail_missing() {
  const std::vector<int> late = missing();
  std::string text =
      late.empty() ? fmt::format("{}: the time was over before all {} ranks had met at {}", group(), meeting_.size,
                                 store_.name())
                   : fmt::format("{}: {} of {} did not come to {} in time{}", group(), list_of(late), meeting_.size,
                                 store_.name(), have_all_come(late) ? ", though all had come before" : "");
  if (step_ == 0) text += twice_joined();
  if (meeting_.rank == 0) {
    store_.set(key("all"), kMissing + text, soon());
    std::vector<int> there;
    for (int rank = 1; rank < meeting_.size; ++rank)
      if (std::find(late.begin(), late.end(), rank) == late.end()) there.push_back(rank);
    leave_together(there);
  }
  throw TimeoutError(text);
}

void StoreExchange::leave_together() noexcept {
  std::vector<int> others;
  for (int rank = 1; rank < meeting_.size; ++rank) others.push_back(rank);
  leave_together(others);
}

void StoreExchange::leave_together(const std::vector<int>& others) noexcept {
  const auto key_of = [this](int rank) { return key(fmt::format("{} has read", rank)); };
  try {
    if (meeting_.rank != 0) return store_.set(key_of(meeting_.rank), "", soon());
    std::vector<std::string> keys;
    for (const int rank : others) keys.push_back(key_of(rank));
    if (!keys.empty()) store_.wait(keys, kLastWords);
  } catch (const std::exception&) {
    // Somebody ended meanwhile, or stands still.
  }
}

std::string StoreExchange::combine(std::string own) {
  const std::size_t bytes = own.size();
  std::string all = std::move(own);
  std::vector<std::string> values;
  try {
    values = await(keys_of_others(), meeting_.deadline);
  } catch (const TimeoutError&) {
    fail_missing();
  }
  std::string misfit;
  std::vector<int> there;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int rank = static_cast<int>(i) + 1;
    const bool fits = values[i].starts_with(kAll);
    const std::string value = values[i].substr(1);
    if (fits) there.push_back(rank);
    all += value;
    if (!misfit.empty() || (fits && value.size() == bytes)) continue;
    misfit = fits ? fmt::format("{}: rank {} gives {} bytes where rank 0 gives {}: are all ranks the same program?",
                                group(), rank, value.size(), bytes)
                  : value;
  }
  const std::string verdict = misfit.empty() ? kAll + all : kMisfit + misfit;
  const std::string given = store_.compare_set(key("all"), "", verdict, meeting_.deadline);
  if (given.starts_with(kAll)) return all;
  leave_together(there);
  throw UsageError(given.substr(1));
}

std::string StoreExchange::take(const std::string& own) {
  store_.set(key(std::to_string(meeting_.rank)), kAll + own, meeting_.deadline);
  std::string all;
  try {
    all = await({key("all")}, later(meeting_.deadline, kGrace)).front();
  } catch (const TimeoutError&) {
    fail_missing();
  }
  const char kind = all.empty() ? kMisfit : all[0];
  all.erase(0, 1);
  if (kind == kAll) return all;
  leave_together();
  if (kind == kMissing) throw TimeoutError(all);
  throw UsageError(all);
}

void StoreExchange::all_gather(const void* own, void* all, std::size_t bytes) {
  std::string mine(static_cast<const char*>(own), bytes);
  const std::string values = meeting_.rank == 0 ? combine(std::move(mine)) : take(mine);
  const std::size_t wanted = bytes * static_cast<std::size_t>(meeting_.size);
  if (values.size() != wanted)
    throw UsageError(fmt::format("{}: rank 0 gives {} bytes where rank {} takes {}: are all ranks the same program?",
                                 group(), values.size(), meeting_.rank, wanted));
  std::memcpy(all, values.data(), wanted);
  ++step_;
  reports_ = 0;
}

}  // namespace retinue
