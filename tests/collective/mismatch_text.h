#pragma once

#include <algorithm>
#include <sstream>
#include <string>

namespace retinue::test {

/// Whether `ranks`, as "0, 2-7", names this one.
inline bool names_rank(const std::string& ranks, int rank) {
  std::istringstream text(ranks);
  for (std::string part; std::getline(text, part, ',');) {
    const std::size_t dash = part.find('-');
    const int first = std::stoi(part);
    const int last = dash == std::string::npos ? first : std::stoi(part.substr(dash + 1));
    if (first <= rank && rank <= last) return true;
  }
  return false;
}

/// What a CollectiveMismatch says of a rank's call, as "barrier at train.cpp:88"; empty where it doesn't name the rank.
inline std::string call_of_rank(const std::string& message, int rank) {
  const std::string head = " of each): ";
  std::size_t at = message.find(head);
  if (at == std::string::npos) return "";
  for (at += head.size(); at < message.size();) {
    const std::size_t end = std::min(message.find("; rank", at), message.size());
    const std::string piece = message.substr(at, end - at);
    const std::size_t colon = piece.find(": ");
    const std::size_t blank = piece.find(' ');
    if (colon == std::string::npos || blank > colon) return "";
    if (names_rank(piece.substr(blank, colon - blank), rank)) return piece.substr(colon + 2);
    at = end + 2;
  }
  return "";
}

}  // namespace retinue::test
