#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "retinue/base/deadline.h"
#include "store/frame.h"
#include "store/key_table.h"

namespace retinue {

/// What a TcpStore's server does with requests: the table, and who waits for keys of it. It knows no sockets, and a
/// client only by a number.
///
/// A client has one request at a time; that of one who waits is answered when its keys are there, or its time is over.
class StoreService {
 public:
  using Client = std::uint64_t;
  using Now = Deadline::Clock::time_point;

  /// No answer is longer than `max_frame_bytes`.
  explicit StoreService(std::uint64_t max_frame_bytes) : max_frame_bytes_(max_frame_bytes) {}

  /// Carries out a request. Its answer, and those of others whose wait it ends, are in answers().
  /// False: this is no request that any client of ours makes; nothing has changed.
  bool carry_out(Client client, Frame request, Now now);
  /// Ends waits whose time is over.
  void end_waits(Now now);
  /// When the next wait ends in vain.
  Deadline next_end() const;

  bool waits(Client client) const { return waiting_.contains(client); }
  /// The client is gone: it waits no more.
  void forget(Client client);

  /// What is to be sent, each in its turn; the caller empties it.
  std::vector<std::pair<Client, std::string>>& answers() { return answers_; }

 private:
  struct Wait {
    Request kind;
    std::vector<std::string> keys;
    std::size_t next = 0;  ///< The key that was missing when it was looked at last.
    Deadline deadline;
  };

  void answer(Client client, Answer kind, std::int64_t number = 0, std::vector<std::string> strings = {});
  void change(Client client, Request kind, const Frame& request);
  void begin_wait(Client client, Request kind, Frame request, Now now);
  /// The first of the keys that is missing, from where it stopped before.
  static std::optional<std::size_t> missing_key(const KeyTable& table, const Wait& wait);
  void finish(Client client, const Wait& wait);
  void key_was_set(const std::string& key);

  std::uint64_t max_frame_bytes_;
  KeyTable table_;
  std::unordered_map<Client, Wait> waiting_;
  /// Each waiting client stands under one key, which is missing now.
  std::unordered_map<std::string, std::set<Client>> by_key_;
  std::set<std::pair<Now, Client>> by_end_;
  std::vector<std::pair<Client, std::string>> answers_;
};

}  // namespace retinue
