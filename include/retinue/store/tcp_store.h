#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "retinue/store/store.h"

namespace retinue {

struct TcpStoreOptions {
  /// Name or number, of IPv4 or IPv6. The server listens on this address only.
  std::string host = "127.0.0.1";
  /// Of the server 0: any free one, see TcpStore::port().
  int port = 0;
  /// One process of all serves the table, and uses it as the others do.
  bool is_server = false;
  /// The job's secret. Empty: the environment variable RETINUE_TOKEN, else the user's file, made on demand:
  /// $XDG_CONFIG_HOME/retinue/token or ~/.config/retinue/token.
  std::string token = {};
  /// For connecting, and for calls without a deadline.
  Store::Time timeout = Store::kDefaultTimeout;
  /// The server's: keys and values of one call, with some bytes for each.
  std::size_t max_message_bytes = std::size_t{64} << 20;
  /// The server's: how long somebody who connected may take to prove that they know the token.
  std::chrono::milliseconds handshake_timeout = std::chrono::seconds(10);
};

/// A store that one process serves to others over TCP. It takes only those who prove that they know the job's token,
/// and proves it to them; what is said afterwards is neither encrypted nor signed.
///
/// The server is a thread. It ends, and the table with it, when its store is destroyed or its process ends; it waits
/// for no client. A client that is slow, stopped or killed disturbs no other.
///
/// Blocking: the constructor until the server, which may start later, has taken this process. Calls of a server that
/// does not answer end a second after their deadline.
/// Threads: all functions, from any thread; each call has a connection of its own while it lasts.
/// Errors: of the constructor TimeoutError, which says what was tried, when no server took this process in time;
/// UsageError for a wrong token, for another program at that address, for an unknown host; SystemError when the server
/// can't listen. Of calls also Closed, of this and all later ones, when the server is gone; UsageError for what is
/// longer than max_message_bytes, and in a fork of the process that made this.
class TcpStore : public Store {
 public:
  explicit TcpStore(const TcpStoreOptions& options);
  ~TcpStore() override;

  /// Where the server listens.
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

/// This host's address, numeric, as hosts that reach `host` reach this one: that from which packets there would go.
/// Nothing is sent.
/// Blocking: while the resolver asks name servers. Errors: UsageError for an unknown host; SystemError without a way.
std::string local_host_towards(const std::string& host, int port);

}  // namespace retinue
