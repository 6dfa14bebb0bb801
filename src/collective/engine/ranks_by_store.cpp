#include "collective/engine/ranks_by_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include "os/process/process_calls.h"
#include "os/process/process_look.h"
#include "retinue/base/error.h"
#include "retinue/store/store.h"
#include "store/find_value.h"

namespace retinue {
namespace {

constexpr std::chrono::milliseconds kMoment(200);
/// The kernel closes what a process has open before it is seen to have ended: with much memory, long before.
constexpr std::chrono::milliseconds kUntilEnd(1000);
constexpr std::chrono::milliseconds kBetweenTries(10);
/// Until a rank that waits has looked once more.
constexpr std::chrono::milliseconds kUntilLook = RanksByStore::kBetweenLooks + std::chrono::milliseconds(500);
constexpr std::chrono::milliseconds kUntilLookOfBusy(10'000);

std::string key_of_process(int rank) {
  return fmt::format("process {}", rank);
}

constexpr const char* kLoss = "loss";  ///< Of the ranks in the first line; then what errors say.
std::string key_of_taking(int rank) {
  return fmt::format("loss taken {}", rank);
}
[[noreturn]] void throw_loss(const std::string& loss) {
  const std::size_t end = loss.find('\n');
  std::istringstream ranks(loss.substr(0, end));
  throw PeerLost(loss.substr(end + 1), {std::istream_iterator<int>(ranks), {}});
}

std::string name_of_host() {
  std::array<char, 65> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

}  // namespace

std::string RanksByStore::Process::text() const {
  return fmt::format("{}\n{}\n{}\n{}{}", host, identity, pid, where, calls < 0 ? "" : fmt::format("\n{}", calls));
}

RanksByStore::Process RanksByStore::Process::of(const std::string& text) {
  std::istringstream lines(text);
  std::array<std::string, 5> line;
  for (std::string& one : line) std::getline(lines, one);
  Process process{.host = line[0], .identity = line[1], .pid = std::atoi(line[2].c_str()), .where = line[3]};
  if (!line[4].empty()) process.calls = std::strtoll(line[4].c_str(), nullptr, 10);
  return process;
}

RanksByStore::Process RanksByStore::Process::own(const std::string& host) {
  return {.host = host,
          .identity = identity_of_process(getpid()),
          .pid = getpid(),
          .where = fmt::format("pid {} on {}", getpid(), name_of_host())};
}

std::string describe_engine_process(const std::string& host) {
  return RanksByStore::Process::own(host).text();
}

RanksByStore::RanksByStore(const EngineMembers& members)
    : store_(members.store), own_(Process::own(members.host)), rank_(members.rank), size_(members.size) {
  for (const std::string& text : members.processes) processes_.push_back(Process::of(text));
  store_->set(key_of_process(rank_), own_.text(), Deadline::after(kPatience));
}

const RanksByStore::Process& RanksByStore::process(int rank) {
  if (processes_.empty()) ask(kPatience);
  return processes_[static_cast<std::size_t>(rank)];
}

void RanksByStore::ask(std::chrono::milliseconds patience) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < size_; ++rank) keys.push_back(key_of_process(rank));
  for (const std::string& text : store_->multi_get(keys, Deadline::after(patience)))
    processes_.push_back(Process::of(text));
}

void RanksByStore::leave(std::uint64_t calls) {
  own_.calls = static_cast<std::int64_t>(calls);
  store_->set(key_of_process(rank_), own_.text(), Deadline::after(kPatience));
}

std::optional<bool> RanksByStore::has_left_after(int rank, std::uint64_t sequence) noexcept {
  if (std::chrono::steady_clock::now() < trouble_until_) return std::nullopt;
  try {
    const std::optional<std::string> text = find_value(*store_, key_of_process(rank), kPatience);
    return text && Process::of(*text).calls >= static_cast<std::int64_t>(sequence);
  } catch (const std::exception&) {
    trouble_until_ = std::chrono::steady_clock::now() + kAfterTrouble;
    return std::nullopt;
  }
}

void RanksByStore::know_all(bool have_all_joined) noexcept {
  if (!processes_.empty() || std::chrono::steady_clock::now() < asks_again_at_) return;
  try {
    ask(have_all_joined ? kPatience : kMoment);
  } catch (const std::exception&) {
    // Later, when all have joined: the store may end with the rank that serves it, and then nobody can be asked.
    if (have_all_joined) asks_again_at_ = std::chrono::steady_clock::now() + kAfterTrouble;
  }
}

std::vector<int> RanksByStore::left_before(std::uint64_t sequence) noexcept {
  std::vector<int> ranks = others();
  std::erase_if(ranks,
                [&](int rank) { return has_left_after(rank, 0) != true || has_left_after(rank, sequence) == true; });
  return ranks;
}

std::vector<int> RanksByStore::ended_as_known() noexcept {
  std::vector<int> ranks = processes_.empty() ? std::vector<int>() : others();
  std::erase_if(ranks, [this](int rank) { return !has_ended(rank); });
  return ranks;
}

std::string RanksByStore::text_of_ended(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += fmt::format("{}{} has ended", text.empty() ? "" : "; ", name_of(rank));
  return text;
}

std::vector<int> RanksByStore::others() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_) ranks.push_back(rank);
  return ranks;
}

std::vector<int> RanksByStore::others_of_own_host() {
  std::vector<int> ranks = others();
  std::erase_if(ranks, [this](int rank) { return !is_of_own_host(rank); });
  return ranks;
}

bool RanksByStore::has_ended(int rank) {
  return rank != rank_ && is_of_own_host(rank) && has_process_ended(process(rank).identity);
}

std::vector<int> RanksByStore::ended(std::uint64_t sequence) {
  std::vector<int> ranks = others_of_own_host();
  std::erase_if(ranks, [&](int rank) { return !has_ended(rank) || has_left_after(rank, sequence) == true; });
  return ranks;
}

std::vector<int> RanksByStore::ended_soon(std::uint64_t sequence) {
  const Deadline deadline = Deadline::after(kUntilEnd);
  std::vector<int> lost = ended(sequence);
  while (lost.empty() && await_an_end(deadline)) lost = ended(sequence);
  return lost;
}

void RanksByStore::take_loss_of_others() {
  const std::optional<std::string> loss = find_value(*store_, kLoss, kPatience);
  if (!loss) return;
  try {
    store_->set(key_of_taking(rank_), "", Deadline::after(kPatience));
  } catch (const std::exception&) {
    // The rank that serves the store ends when it has this, and may not answer any more.
  }
  throw_loss(*loss);
}

void RanksByStore::tell_loss(const std::vector<int>& lost,
                             const std::function<std::vector<int>(std::vector<int> others)>& waiting) {
  const std::string own = fmt::format("{}\n{}", fmt::join(lost, " "), text_of_ended(lost));
  const std::string loss = store_->compare_set(kLoss, "", own, Deadline::after(kPatience));
  try {
    store_->set(key_of_taking(rank_), "", Deadline::after(kPatience));
    std::vector<int> living = others();
    std::erase_if(living, [this](int rank) { return has_ended(rank) || has_left_after(rank, 0) == true; });
    // Of those that don't take it, some are in no call, or stand still. Ranks that wait in this one look again, however
    // busy the machine is.
    if (!await_taking(living, kUntilLook)) await_taking(waiting(living), kUntilLookOfBusy);
  } catch (const std::exception&) {
    // The store ended with the rank that serves it, which knows.
  }
  throw_loss(loss);
}

bool RanksByStore::await_taking(const std::vector<int>& others, std::chrono::milliseconds patience) {
  std::vector<std::string> keys;
  for (const int rank : others) keys.push_back(key_of_taking(rank));
  try {
    if (!keys.empty()) store_->wait(keys, Deadline::after(patience));
    return true;
  } catch (const TimeoutError&) {
    return false;
  }
}

bool RanksByStore::await_an_end(const Deadline& deadline) {
  std::vector<FileDescriptor> processes;
  std::vector<pollfd> ends;
  std::chrono::nanoseconds longest = kUntilEnd;
  bool is_any_left = false;
  for (const int rank : others_of_own_host()) {
    if (has_ended(rank)) continue;
    is_any_left = true;
    try {
      processes.push_back(open_pidfd(pid(rank)));
      ends.push_back({.fd = processes.back().get(), .events = POLLIN, .revents = 0});
    } catch (const SystemError&) {
      longest = kBetweenTries;  // It ended just now, or there is no descriptor for it.
    }
  }
  if (!is_any_left || deadline.passed()) return false;
  const auto time = std::chrono::ceil<std::chrono::milliseconds>(deadline.left(longest));
  poll(ends.data(), ends.size(), static_cast<int>(time.count()));
  return true;
}

}  // namespace retinue
