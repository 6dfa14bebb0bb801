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

  /// What gloo threw, as Retinue says it: TimeoutError, PeerLost or Error. `head`: the text's beginning.
  std::exception_ptr translated(const std::exception_ptr& error, std::string_view head) const;

  /// Calls `call`, and throws what that throws translated. `what`: what this rank is in, if nobody else will say that.
  template <typename Call>
  auto checked(std::string_view what, Call call) const {
    try {
      return call();
    } catch (...) {
      std::rethrow_exception(translated(std::current_exception(), what.empty() ? "" : head_of(what)));
    }
  }

 private:
  std::string head_of(std::string_view what) const;
  std::vector<int> named_in(const std::string& text) const;

  std::string group_;
  int rank_;
  std::vector<std::string> addresses_;
};

}  // namespace retinue
