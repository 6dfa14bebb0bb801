#pragma once

namespace retinue {

/// A free TCP port that stays bound, but not listened on, while this object lives.
///
/// The kernel gives it to nobody else who asks for any port, and no outgoing connection gets it, so two jobs never have
/// the same. A rank listens on it beside us because both sides set SO_REUSEADDR, as TCPStore, gRPC, asyncio and
/// nearly every server do. Errors: SystemError.
class HeldPort {
 public:
  HeldPort();
  ~HeldPort();
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;

  int number() const { return number_; }

 private:
  int fd_ = -1;
  int number_ = 0;
};

}  // namespace retinue
