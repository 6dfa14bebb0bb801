#pragma once

#include <sys/types.h>

#include <string>

namespace retinue::test {

/// Two hosts that the test makes of this one: each has a network of its own, connected with the other's by a virtual
/// cable, and a kernel that says another boot id. Gone with this object.
class TwoHosts {
 public:
  TwoHosts();
  ~TwoHosts();
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  /// Why there are none, as where this user may not make any; else empty.
  const std::string& missing() const { return missing_; }

  /// Moves this process, which has one thread, to a host.
  void enter(int host) const;

  /// As the other host reaches it.
  static std::string address(int host) { return host == 0 ? "10.77.0.1" : "10.77.0.2"; }
  static std::string interface(int host) { return host == 0 ? "veth0" : "veth1"; }

 private:
  void connect();

  std::string missing_;
  pid_t keepers_[2] = {-1, -1};  ///< Processes that hold the hosts.
};

}  // namespace retinue::test
