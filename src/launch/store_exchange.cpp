#include "launch/store_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "retinue/base/error.h"

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

std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const std::size_t named = std::min(ranks.size(), kNamedRanks);
  for (std::size_t i = 0; i < named; ++i) text += fmt::format("{}{}", i > 0 ? ", " : "", ranks[i]);
  if (named < ranks.size()) text += fmt::format(" and {} more", ranks.size() - named);
  return text;
}

}  // namespace

StoreExchange::StoreExchange(std::shared_ptr<Store> store, std::string name, int rank, int size, Deadline deadline)
    : store_(std::move(store)), name_(std::move(name)), rank_(rank), size_(size), deadline_(deadline) {
  joined_ = joined(rank_, 1, deadline_);
  prefix_ = fmt::format("retinue/{}/{}", name_, joined_);
  agree_on_size();
}

std::int64_t StoreExchange::joined(int rank, int more, Deadline deadline) {
  return store_->add(fmt::format("retinue/{}/joined by {}", name_, rank), more, deadline);
}

void StoreExchange::agree_on_size() {
  const std::string own = fmt::format("{} ranks, as rank {}", size_, rank_);
  const std::string first = store_->compare_set(prefix_ + "/size", "", own, deadline_);
  const int others_size = std::atoi(first.c_str());
  if (others_size == size_) return;
  const std::string text = fmt::format(
      "group \"{}\" at {}: a process came that counts {}, and another {} says: all must give the same world size "
      "(WORLD_SIZE)",
      name_, store_->name(), own, first);
  // Rank 0 waits for as many as it counts, the others for what it makes of that.
  store_->compare_set(key("all"), "", kMisfit + text, deadline_);
  for (int rank = 1; rank < std::max(size_, others_size); ++rank)
    store_->compare_set(key(std::to_string(rank)), "", kMisfit + text, deadline_);
  throw UsageError(text);
}

std::string StoreExchange::twice_joined() {
  std::string text;
  for (int rank = 0; rank < size_; ++rank) {
    const std::int64_t times = joined(rank, 0, Deadline::after(kLastWords));
    if (times > joined_)
      text +=
          fmt::format("; rank {} has come {} times where rank {} has come {}: do two processes give that rank (RANK)?",
                      rank, times, rank_, joined_);
  }
  return text;
}

std::string StoreExchange::key(const std::string& who) const {
  return fmt::format("{}/{}/{}", prefix_, step_, who);
}

std::vector<std::string> StoreExchange::keys_of_others() const {
  std::vector<std::string> keys;
  for (int rank = 1; rank < size_; ++rank) keys.push_back(key(std::to_string(rank)));
  return keys;
}

void StoreExchange::fail_missing() {
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank) {
    const std::string theirs = key(rank == 0 ? "all" : std::to_string(rank));
    if (rank != rank_ && !store_->check({theirs}, Deadline::after(kLastWords))) missing.push_back(rank);
  }
  std::string text = missing.empty()
                         ? fmt::format("group \"{}\": the time was over before all {} ranks had met at {}", name_,
                                       size_, store_->name())
                         : fmt::format("group \"{}\": {} of {} did not come to {} in time{}", name_, list_of(missing),
                                       size_, store_->name(), step_ == 0 ? "" : ", though all had come before");
  if (step_ == 0) text += twice_joined();
  if (rank_ == 0) store_->set(key("all"), kMissing + text, Deadline::after(kLastWords));
  throw TimeoutError(text);
}

std::string StoreExchange::combine(std::string own) {
  const std::size_t bytes = own.size();
  std::string all = std::move(own);
  std::vector<std::string> values;
  try {
    values = store_->multi_get(keys_of_others(), deadline_);
  } catch (const TimeoutError&) {
    fail_missing();
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool fits = values[i].starts_with(kAll);
    const std::string value = values[i].substr(1);
    if (fits && value.size() == bytes) {
      all += value;
      continue;
    }
    const std::string text = fits ? fmt::format(
                                        "group \"{}\": rank {} gives {} bytes where rank 0 gives {}: are all "
                                        "ranks the same program?",
                                        name_, i + 1, value.size(), bytes)
                                  : value;
    store_->set(key("all"), kMisfit + text, deadline_);
    throw UsageError(text);
  }
  const std::string given = store_->compare_set(key("all"), "", kAll + all, deadline_);
  if (given.starts_with(kMisfit)) throw UsageError(given.substr(1));
  return all;
}

std::string StoreExchange::take(const std::string& own) {
  store_->set(key(std::to_string(rank_)), kAll + own, deadline_);
  std::string all;
  try {
    all = store_->get(key("all"), later(deadline_, kGrace));
  } catch (const TimeoutError&) {
    fail_missing();
  }
  const char kind = all.empty() ? kMisfit : all[0];
  all.erase(0, 1);
  if (kind == kMissing) throw TimeoutError(all);
  if (kind != kAll) throw UsageError(all);
  return all;
}

void StoreExchange::all_gather(const void* own, void* all, std::size_t bytes) {
  std::string mine(static_cast<const char*>(own), bytes);
  const std::string values = rank_ == 0 ? combine(std::move(mine)) : take(mine);
  const std::size_t wanted = bytes * static_cast<std::size_t>(size_);
  if (values.size() != wanted)
    throw UsageError(
        fmt::format("group \"{}\": rank 0 gives {} bytes where rank {} takes {}: are all ranks the same "
                    "program?",
                    name_, values.size(), rank_, wanted));
  std::memcpy(all, values.data(), wanted);
  ++step_;
}

}  // namespace retinue
