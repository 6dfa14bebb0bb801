#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "retinue/store/store.h"

namespace retinue {

struct TcpStoreOptions {
  /// A host name or an address, IPv4 or IPv6. The server listens on this address only.
  std::string host = "127.0.0.1";
  /// For the server, 0 selects any free port; see TcpStore::port().
  int port = 0;
  /// One process of all serves the table, and uses it as the others do.
  bool is_server = false;
  /// The job's secret. Empty: the environment variable RETINUE_TOKEN, else the user's file, made on demand:
  /// $XDG_CONFIG_HOME/retinue/token or ~/.config/retinue/token.
  std::string token = {};
  /// For connecting, and for calls without a deadline.
  Store::Time timeout = Store::kDefaultTimeout;
  /// The server's limit: the keys and values of one call, with some bytes for each.
  std::size_t max_message_bytes = std::size_t{64} << 20;
  /// The server's limit: the time that a new connection may take to prove that it knows the token.
  std::chrono::milliseconds handshake_timeout = std::chrono::seconds(10);
};

/// A store that one process serves to others over TCP. The server accepts only clients that prove that they know the
/// job's token, and proves to them that it knows it. Later traffic is neither encrypted nor signed.
///
/// The server is a thread. It ends, and the table with it, when its store is destroyed or its process ends; it waits
/// for no client. A slow, stopped or killed client disturbs no other.
///
/// Blocking: the constructor, until the server, which may start later, has accepted this process. Calls to a server
/// that does not answer end a second after their deadline.
/// Threads: all functions, from any thread; each call has its own connection while it lasts.
/// Errors: the constructor throws TimeoutError, which lists what was tried, if no server accepted this process in time;
/// UsageError for a wrong token, another program at that address, or an unknown host; SystemError if the server can't
/// listen. Calls also throw Closed, then and in all later calls, if the server is gone; UsageError for data longer than
/// max_message_bytes, and in a fork of the process that made this store.
class TcpStore : public Store {
 public:
  explicit TcpStore(const TcpStoreOptions& options);
  ~TcpStore() override;

  /// Return the address at which the server listens.
  int port() const noexcept;
  const std::string& host() const noexcept;
  std::string name() const override;

 private:
  struct Impl;

  void do_set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::vector<std::string> do_multi_get(const std::vector<std::string>& keys, Deadline deadline) override;
  std::int64_t do_add(std::string_view key, std::int64_t delta, Deadline deadline) override;
  std::string do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                             Deadline deadline) override;
  void do_wait(const std::vector<std::string>& keys, Deadline deadline) override;
  bool do_check(const std::vector<std::string>& keys, Deadline deadline) override;
  bool do_delete_key(std::string_view key, Deadline deadline) override;
  std::int64_t do_num_keys(Deadline deadline) override;

  std::unique_ptr<Impl> impl_;
};

/// Returns this host's numeric address, as hosts that reach `host` reach it: the address from which packets to `host`
/// would leave. Sends nothing.
/// Blocking: while the resolver queries name servers. Errors: UsageError for an unknown host; SystemError without a
/// route.
std::string local_host_towards(const std::string& host, int port);

}  // namespace retinue
