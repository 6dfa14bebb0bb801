#include "store/store_service.h"

#include <fmt/format.h>

#include "retinue/base/error.h"

namespace retinue {
namespace {

/// Whether the request has the strings that its kind has.
bool is_whole(const Frame& request) {
  switch (Request{request.kind}) {
    case Request::kSet:
      return request.strings.size() == 2;
    case Request::kAdd:
    case Request::kDelete:
      return request.strings.size() == 1;
    case Request::kCompareSet:
      return request.strings.size() == 3;
    case Request::kGet:
    case Request::kWait:
    case Request::kCheck:
      return !request.strings.empty();
    case Request::kNumKeys:
      return request.strings.empty();
  }
  return false;
}

Deadline end_of(std::int64_t nanoseconds, StoreService::Now now) {
  const std::chrono::nanoseconds time(nanoseconds);
  if (nanoseconds < 0 || time > StoreService::Now::max() - now) return Deadline::never();
  return Deadline::at(now + time);
}

}  // namespace

bool StoreService::carry_out(Client client, Frame request, Now now) {
  if (waits(client) || !is_whole(request)) return false;
  const Request kind{request.kind};
  if (kind == Request::kGet || kind == Request::kWait) {
    begin_wait(client, kind, std::move(request), now);
    return true;
  }
  try {
    change(client, kind, request);
  } catch (const UsageError& error) {
    answer(client, Answer::kRefused, 0, {error.what()});
  }
  return true;
}

void StoreService::change(Client client, Request kind, const Frame& request) {
  switch (kind) {
    case Request::kSet:
      table_.set(request.strings[0], request.strings[1]);
      answer(client, Answer::kDone);
      return key_was_set(request.strings[0]);
    case Request::kAdd:
      answer(client, Answer::kDone, table_.add(request.strings[0], request.number));
      return key_was_set(request.strings[0]);
    case Request::kCompareSet: {
      std::string value = table_.compare_set(request.strings[0], request.strings[1], request.strings[2]);
      answer(client, Answer::kDone, 0, {std::move(value)});
      if (table_.find(request.strings[0]) != nullptr) key_was_set(request.strings[0]);
      return;
    }
    case Request::kDelete:
      return answer(client, Answer::kDone, table_.erase(request.strings[0]) ? 1 : 0);
    case Request::kCheck:
      return answer(client, Answer::kDone, table_.has(request.strings) ? 1 : 0);
    default:
      return answer(client, Answer::kDone, static_cast<std::int64_t>(table_.size()));
  }
}

void StoreService::answer(Client client, Answer kind, std::int64_t number, std::vector<std::string> strings) {
  Frame frame{static_cast<std::uint8_t>(kind), number, std::move(strings)};
  if (const std::uint64_t bytes = body_bytes(frame); bytes > max_frame_bytes_ && kind == Answer::kDone)
    frame = {static_cast<std::uint8_t>(Answer::kRefused),
             0,
             {fmt::format("the values have {} bytes, but one call may have at most {}: get them one by one, or raise "
                          "TcpStoreOptions::max_message_bytes",
                          bytes, max_frame_bytes_)}};
  answers_.emplace_back(client, encode(frame));
}

std::optional<std::size_t> StoreService::missing_key(const KeyTable& table, const Wait& wait) {
  // From the last one on: each key is looked at twice in all, however many clients wait for how many keys.
  for (std::size_t i = wait.next; i < wait.keys.size(); ++i)
    if (table.find(wait.keys[i]) == nullptr) return i;
  // Those before it were there, but somebody may have deleted them.
  for (std::size_t i = 0; i < wait.next; ++i)
    if (table.find(wait.keys[i]) == nullptr) return i;
  return std::nullopt;
}

void StoreService::finish(Client client, const Wait& wait) {
  if (wait.kind == Request::kGet)
    answer(client, Answer::kDone, 0, table_.values(wait.keys));
  else
    answer(client, Answer::kDone);
}

void StoreService::begin_wait(Client client, Request kind, Frame request, Now now) {
  Wait wait{kind, std::move(request.strings), 0, end_of(request.number, now)};
  const std::optional<std::size_t> missing = missing_key(table_, wait);
  if (!missing) return finish(client, wait);
  wait.next = *missing;
  // First here, so that forget() finds what else there is of it where memory runs out.
  const Wait& kept = waiting_.emplace(client, std::move(wait)).first->second;
  by_key_[kept.keys[*missing]].insert(client);
  if (!kept.deadline.is_never()) by_end_.emplace(kept.deadline.when(), client);
}

void StoreService::key_was_set(const std::string& key) {
  const auto place = by_key_.find(key);
  if (place == by_key_.end()) return;
  const std::set<Client> clients = std::move(place->second);
  by_key_.erase(place);
  for (const Client client : clients) {
    Wait& wait = waiting_.at(client);
    if (const std::optional<std::size_t> missing = missing_key(table_, wait)) {
      wait.next = *missing;
      by_key_[wait.keys[*missing]].insert(client);
      continue;
    }
    finish(client, wait);
    if (!wait.deadline.is_never()) by_end_.erase({wait.deadline.when(), client});
    waiting_.erase(client);
  }
}

void StoreService::forget(Client client) {
  const auto place = waiting_.find(client);
  if (place == waiting_.end()) return;
  const Wait& wait = place->second;
  const auto under = by_key_.find(wait.keys[wait.next]);
  if (under != by_key_.end()) {
    under->second.erase(client);
    if (under->second.empty()) by_key_.erase(under);
  }
  if (!wait.deadline.is_never()) by_end_.erase({wait.deadline.when(), client});
  waiting_.erase(place);
}

void StoreService::end_waits(Now now) {
  while (!by_end_.empty() && by_end_.begin()->first <= now) {
    const Client client = by_end_.begin()->second;
    const std::vector<std::string> missing = table_.missing(waiting_.at(client).keys);
    forget(client);
    answer(client, Answer::kMissing, 0, missing);
  }
}

Deadline StoreService::next_end() const {
  return by_end_.empty() ? Deadline::never() : Deadline::at(by_end_.begin()->first);
}

}  // namespace retinue
