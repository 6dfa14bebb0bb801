#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "store/frame.h"
#include "store/handshake.h"

namespace retinue {

/// What a server tells and asks those who connect.
struct ServerSide {
  std::string token;
  ServerFacts facts;
};

/// One connection as its server sees it, without its socket: first a stranger, then a member with one request at a
/// time.
class StoreSession {
 public:
  /// `nonce` is random. greeting() is to be sent at once.
  StoreSession(const ServerSide& side, std::string nonce) : side_(&side), nonce_(std::move(nonce)) {}

  std::string greeting() const { return make_greeting(nonce_); }

  /// Takes bytes that came. Returns what is to be sent; nullopt: this is no client, or no sane one: the connection is
  /// to be closed without a word.
  std::optional<std::string> receive(std::string_view bytes);

  bool is_member() const { return is_member_; }
  /// A request that came whole. The next bytes may come after answered().
  std::optional<Frame> take_request();
  void answered() { is_busy_ = false; }

 private:
  std::optional<std::string> check_stranger(std::string_view bytes);

  const ServerSide* side_;
  std::string nonce_;
  std::string proof_;
  FrameReader reader_{0};
  std::optional<Frame> request_;
  bool is_member_ = false;
  bool is_busy_ = false;
};

}  // namespace retinue
