#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "os/process/process_look.h"
#include "retinue/launch/join_group.h"
#include "retinue/launch/store_exchange.h"

namespace retinue {

/// For what is asked beside the wait, or when its time is over.
inline constexpr std::chrono::seconds kLastWords{1};

/// What a value begins with: data, or why there are none. Rank 0's are of all.
inline constexpr char kAll = 'v';
inline constexpr char kMissing = 'm';
inline constexpr char kMisfit = 'u';
inline constexpr char kLost = 'l';  ///< The rank, a blank and the text follow.

/// A process that is in a meeting, as it says at the store.
struct StoreExchange::Arrival {
  std::string identity = {};
  std::int64_t number = 0;  ///< Of the meeting; 0: not known yet.
  std::string host = {};
  std::string refusal = {};  ///< By another process that is there as the same rank, while there is no number.

  std::string text() const { return fmt::format("{}\n{}\n{}\n{}", identity, number, host, refusal); }
  static Arrival of(const std::string& text) {
    Arrival arrival;
    std::istringstream lines(text);
    std::string number;
    std::getline(lines, arrival.identity);
    std::getline(lines, number);
    std::getline(lines, arrival.host);
    std::getline(lines, arrival.refusal, '\0');
    arrival.number = std::atoll(number.c_str());
    return arrival;
  }

  bool is_here() const { return host == host_of_this_process(); }
  bool lives() const { return !has_process_ended(identity); }
  pid_t pid() const { return std::atoi(identity.c_str()); }
};

}  // namespace retinue
