#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace retinue {

/// The ranks of a group that gloo connects, for errors: gloo names addresses.
class GlooPeers {
 public:
  /// `addresses`: of each rank, numeric; empty where it isn't known.
  GlooPeers(std::string group, int rank, std::vector<std::string> addresses)
      : group_(std::move(group)), rank_(rank), addresses_(std::move(addresses)) {}

  const std::string& group() const { return group_; }

  /// What gloo threw, as Retinue says it: TimeoutError, PeerLost, UsageError, or Error.
  std::exception_ptr translated(const std::exception_ptr& error, std::string_view call) const;

  /// Calls `call`, and throws what that throws translated.
  template <typename Call>
  auto checked(std::string_view name, Call call) const {
    try {
      return call();
    } catch (...) {
      std::rethrow_exception(translated(std::current_exception(), name));
    }
  }

 private:
  std::vector<int> named_in(const std::string& text) const;

  std::string group_;
  int rank_;
  std::vector<std::string> addresses_;
};

}  // namespace retinue
