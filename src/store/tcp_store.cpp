#include "retinue/store/tcp_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "os/sockets/tcp_socket.h"
#include "retinue/base/error.h"
#include "store/key_table.h"
#include "store/store_connection.h"
#include "store/tcp_server.h"
#include "store/token.h"

namespace retinue {
namespace {

// How much longer than the caller's deadline a server may take to say that it has passed.
constexpr std::chrono::seconds kAnswerTime(1);
constexpr std::size_t kLeastMessageBytes = 4 << 10;
constexpr std::size_t kMostMessageBytes = std::size_t{1} << 30;
constexpr std::size_t kKeptConnections = 4;

void check_options(const TcpStoreOptions& options) {
  if (options.host.empty()) throw UsageError("TcpStoreOptions::host is empty");
  if (options.port < 0 || options.port > 65535)
    throw UsageError(
        fmt::format("TcpStoreOptions::port is {}: it must be 1 to 65535, or 0 on the server", options.port));
  if (options.port == 0 && !options.is_server)
    throw UsageError(
        "TcpStoreOptions::port is 0: only the server may choose a free port; give its port() to the clients");
  if (options.max_message_bytes < kLeastMessageBytes || options.max_message_bytes > kMostMessageBytes)
    throw UsageError(fmt::format("TcpStoreOptions::max_message_bytes is {}: it must be {} to {}",
                                 options.max_message_bytes, kLeastMessageBytes, kMostMessageBytes));
  if (options.handshake_timeout <= std::chrono::milliseconds(0))
    throw UsageError("TcpStoreOptions::handshake_timeout must be positive");
  if (options.token.size() > kLeastMessageBytes) throw UsageError("TcpStoreOptions::token is longer than 4096 bytes");
}

/// What `use` makes of the first of the host's addresses with which it goes well. `what`: the host, in messages.
template <class Use>
auto use_address_of(std::string_view what, const StoreAddress& address, Use use) {
  const Resolved resolved = resolve(address.host, address.port);
  if (resolved.addresses.empty())
    throw UsageError(fmt::format("{} '{}' can't be resolved: {}", what, address.host, resolved.error));
  for (std::size_t i = 0;; ++i) {
    try {
      return use(resolved.addresses[i]);
    } catch (const SystemError&) {
      // A name may have addresses that are not this machine's, or to which there is no way.
      if (i + 1 == resolved.addresses.size()) throw;
    }
  }
}

std::int64_t nanoseconds_left(Deadline deadline) {
  return deadline.is_never() ? -1 : deadline.left().count();
}

}  // namespace

struct TcpStore::Impl {
  explicit Impl(const TcpStoreOptions& options)
      : address{options.host, options.port}, token(job_token(options.token)), owner(getpid()) {}

  StoreAddress address;
  Token token;
  pid_t owner;
  std::unique_ptr<TcpServer> server;
  std::mutex mutex;
  std::vector<StoreConnection> idle;
  ServerFacts server_facts;  ///< Of the server that took this process first.
  std::string lost;          ///< Why the server is gone; empty while it isn't.

  std::string name() const { return fmt::format("TcpStore at {}", address.text()); }

  void serve(const TcpStoreOptions& options) {
    FileDescriptor listening = use_address_of("the store's host", address, listen_tcp);
    address.port = local_address(listening.get()).port();
    server = std::make_unique<TcpServer>(
        std::move(listening), TcpServerOptions{token.secret, options.max_message_bytes, options.handshake_timeout});
  }

  [[noreturn]] void throw_closed(const std::string& why) const {
    throw Closed(
        fmt::format("{}: the server is gone: {}. Its keys are lost; find out why its process ended", name(), why));
  }

  StoreConnection take_connection(Deadline deadline) {
    {
      const std::lock_guard lock(mutex);
      if (!lost.empty()) throw_closed(lost);
      if (!idle.empty()) {
        StoreConnection connection = std::move(idle.back());
        idle.pop_back();
        return connection;
      }
    }
    StoreConnection connection = connect_to_store(address, token, deadline, Patience::kItWasThere);
    if (connection.facts().id != server_facts.id) throw ConnectionLost{"another server listens there now"};
    return connection;
  }

  void put_back(StoreConnection connection) {
    const std::lock_guard lock(mutex);
    if (idle.size() < kKeptConnections) idle.push_back(std::move(connection));
  }

  /// Errors: as of the call.
  Frame call(const Frame& request, Deadline deadline) {
    if (getpid() != owner)
      throw UsageError(fmt::format("{} was created by process {}, of which this process is a fork: create a store here",
                                   name(), owner));
    check_length(request);
    const Deadline end = Deadline::after(deadline.left()).is_never() ? Deadline::never()
                                                                     : Deadline::after(deadline.left() + kAnswerTime);
    try {
      StoreConnection connection = take_connection(end);
      std::optional<Frame> answer = connection.call(encode(request), end);
      if (!answer)
        throw TimeoutError(
            fmt::format("{}: its server did not answer in time. It is not known whether it executed the call for {}. "
                        "Is its process stopped?",
                        name(), shown_keys(request.strings)));
      put_back(std::move(connection));
      return checked(*std::move(answer));
    } catch (const ConnectionLost& loss) {
      const std::lock_guard lock(mutex);
      if (lost.empty()) lost = loss.reason;
      idle.clear();
      throw_closed(lost);
    }
  }

  void check_length(const Frame& request) const {
    if (const std::uint64_t bytes = body_bytes(request); bytes > server_facts.max_frame_bytes)
      throw UsageError(
          fmt::format("{}: a call for the key {} has {} bytes, but its server accepts at most {}: raise "
                      "TcpStoreOptions::max_message_bytes",
                      name(), shown_keys({request.strings.front()}), bytes, server_facts.max_frame_bytes));
  }

  Frame checked(Frame answer) const {
    if (answer.kind == static_cast<std::uint8_t>(Answer::kDone)) return answer;
    if (answer.kind == static_cast<std::uint8_t>(Answer::kMissing)) throw_missing(name(), answer.strings);
    throw UsageError(fmt::format("{}: {}", name(), answer.strings.empty() ? "" : answer.strings.front()));
  }

  Frame call(Request kind, std::vector<std::string> strings, std::int64_t number, Deadline deadline,
             std::size_t expected) {
    Frame answer = call({static_cast<std::uint8_t>(kind), number, std::move(strings)}, deadline);
    if (answer.strings.size() != expected) throw Error(name() + ": its server sent an unexpected answer");
    return answer;
  }
};

TcpStore::TcpStore(const TcpStoreOptions& options) : Store(options.timeout) {
  check_options(options);
  impl_ = std::make_unique<Impl>(options);
  if (options.is_server) impl_->serve(options);
  StoreConnection first =
      connect_to_store(impl_->address, impl_->token, Deadline::after(options.timeout), Patience::kItMayStartLater);
  impl_->server_facts = first.facts();
  impl_->put_back(std::move(first));
}

TcpStore::~TcpStore() {
  // A fork has no thread to end, and the connections are its parent's.
  if (impl_ != nullptr && getpid() != impl_->owner) static_cast<void>(impl_.release());
}

int TcpStore::port() const noexcept {
  return impl_->address.port;
}
const std::string& TcpStore::host() const noexcept {
  return impl_->address.host;
}
std::string TcpStore::name() const {
  return impl_->name();
}

void TcpStore::do_set(std::string_view key, std::string_view value, Deadline deadline) {
  impl_->call(Request::kSet, {std::string(key), std::string(value)}, 0, deadline, 0);
}

std::vector<std::string> TcpStore::do_multi_get(const std::vector<std::string>& keys, Deadline deadline) {
  return impl_->call(Request::kGet, keys, nanoseconds_left(deadline), deadline, keys.size()).strings;
}

std::int64_t TcpStore::do_add(std::string_view key, std::int64_t delta, Deadline deadline) {
  return impl_->call(Request::kAdd, {std::string(key)}, delta, deadline, 0).number;
}

std::string TcpStore::do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                     Deadline deadline) {
  std::vector<std::string> strings{std::string(key), std::string(expected), std::string(desired)};
  return std::move(impl_->call(Request::kCompareSet, std::move(strings), 0, deadline, 1).strings.front());
}

void TcpStore::do_wait(const std::vector<std::string>& keys, Deadline deadline) {
  impl_->call(Request::kWait, keys, nanoseconds_left(deadline), deadline, 0);
}

bool TcpStore::do_check(const std::vector<std::string>& keys, Deadline deadline) {
  return impl_->call(Request::kCheck, keys, 0, deadline, 0).number != 0;
}

bool TcpStore::do_delete_key(std::string_view key, Deadline deadline) {
  return impl_->call(Request::kDelete, {std::string(key)}, 0, deadline, 0).number != 0;
}

std::int64_t TcpStore::do_num_keys(Deadline deadline) {
  return impl_->call(Request::kNumKeys, {}, 0, deadline, 0).number;
}

std::string local_host_towards(const std::string& host, int port) {
  return use_address_of("the host", {host, port},
                        [](const SocketAddress& address) { return local_address_towards(address).host(); });
}

}  // namespace retinue
