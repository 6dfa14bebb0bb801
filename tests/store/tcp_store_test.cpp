// Who may use a TcpStore, how it is found, and what a member sees of a server that is not well.
#include "retinue/store/tcp_store.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "os/files/descriptor_calls.h"
#include "os/sockets/tcp_socket.h"
#include "retinue/base/error.h"
#include "store/places.h"
#include "store/raw_member.h"
#include "support/fork_shared.h"
#include "support/usage_error.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;
using test::kToken;
using test::RawPeer;
using test::usage_error_of;

template <class Error>
std::string text_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}

TcpStoreOptions serving(int port = 0) {
  return {.port = port, .is_server = true, .token = kToken};
}
TcpStoreOptions client_of(int port) {
  return {.port = port, .token = kToken};
}

/// A port that nobody listens on; somebody else may take it.
int free_port() {
  return local_address(listen_tcp(resolve("127.0.0.1", 0).addresses.at(0)).get()).port();
}

/// A process that serves until it is killed.
class ServingProcess {
 public:
  ServingProcess() {
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const TcpStore store(serving());
      port_->store(store.port());
      for (;;) pause();
    }
    while (port_->load() == 0) std::this_thread::yield();
  }
  ~ServingProcess() {
    signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  int port() const { return port_->load(); }
  void signal(int number) const { kill(pid_, number); }
  void stop() const {
    signal(SIGSTOP);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED);
  }

 private:
  test::ForkShared<std::atomic<int>> port_;
  pid_t pid_ = -1;
};

TEST(TcpStore, RefusesOptionsThatCannotBe) {
  EXPECT_THROW(TcpStore({.port = 0, .token = kToken}), UsageError);
  EXPECT_THROW(TcpStore({.port = 65536, .token = kToken}), UsageError);
  EXPECT_THROW(TcpStore({.port = -1, .is_server = true, .token = kToken}), UsageError);
  EXPECT_THROW(TcpStore({.host = "", .is_server = true, .token = kToken}), UsageError);
  EXPECT_THROW(TcpStore({.is_server = true, .token = kToken, .timeout = 0s}), UsageError);
  EXPECT_THROW(TcpStore({.is_server = true, .token = kToken, .max_message_bytes = 1}), UsageError);
  EXPECT_THROW(TcpStore({.is_server = true, .token = kToken, .handshake_timeout = 0ms}), UsageError);
  // Unknown, or not to be found out where there are no name servers.
  try {
    TcpStore({.host = "no-such-host.invalid", .port = 1, .token = kToken, .timeout = 100ms});
    ADD_FAILURE() << "it is there";
  } catch (const Error& error) {
    EXPECT_TRUE(contains(error.what(), "no-such-host.invalid"));
  }
}

TEST(TcpStore, ListensOnTheGivenAddressOnly) {
  const TcpStore store({.host = "127.0.0.2", .is_server = true, .token = kToken});
  EXPECT_TRUE(contains(store.name(), "127.0.0.2:"));
  const auto other = connect_tcp(resolve("127.0.0.1", store.port()).addresses.at(0), Deadline::after(10s));
  EXPECT_EQ(other.error, ECONNREFUSED);
}

TEST(TcpStore, MeetsByNameAndByIpv6) {
  for (const std::string host : {"localhost", "::1", "0.0.0.0"}) {
    try {
      TcpStore server({.host = host, .is_server = true, .token = kToken});
      TcpStore client({.host = host, .port = server.port(), .token = kToken});
      client.set("key", host);
      EXPECT_EQ(server.get("key"), host);
    } catch (const SystemError& error) {
      // A machine, or a container, without IPv6.
      EXPECT_TRUE(host == "::1" && (error.errno_value() == EADDRNOTAVAIL || error.errno_value() == EAFNOSUPPORT))
          << error.what();
    }
  }
}

TEST(TcpStore, SaysThatThePortIsTaken) {
  const TcpStore store(serving());
  const std::string text = text_of<SystemError>([&] { TcpStore(serving(store.port())); });
  EXPECT_TRUE(contains(text, "EADDRINUSE"));
  EXPECT_TRUE(contains(text, std::to_string(store.port())));
}

TEST(TcpStore, ServerMayStartLater) {
  const int port = free_port();
  std::thread client([&] {
    TcpStore store(client_of(port));
    store.set("early", "yes");
  });
  TcpStore server(serving(port));
  EXPECT_EQ(server.get("early"), "yes");
  client.join();
}

TEST(TcpStore, SaysThatNobodyListens) {
  const int port = free_port();
  const std::string text = text_of<TimeoutError>([&] { TcpStore({.port = port, .token = kToken, .timeout = 30ms}); });
  EXPECT_TRUE(contains(text, "127.0.0.1:" + std::to_string(port)));
  EXPECT_TRUE(contains(text, "ECONNREFUSED"));
  EXPECT_TRUE(contains(text, "nobody listens"));
}

TEST(TcpStore, SaysThatTheTokenIsWrong) {
  const TcpStore server(serving());
  const std::string text = usage_error_of([&] { TcpStore({.port = server.port(), .token = "another token"}); });
  EXPECT_TRUE(contains(text, "refuses this process's token"));
  EXPECT_TRUE(contains(text, "the option `token`"));
  EXPECT_TRUE(contains(text, std::to_string(server.port())));
}

TEST(TcpStore, SaysThatAnotherProgramSpeaksThere) {
  const FileDescriptor listening = listen_tcp(resolve("127.0.0.1", 0).addresses.at(0));
  const int port = local_address(listening.get()).port();
  std::thread program([&] {
    wait_ready(listening.get(), POLLIN, Deadline::after(20s));
    RawPeer peer(accept_tcp(listening.get()).socket);
    peer.say("220 mail.example.org ESMTP\r\n");
    peer.hear(1);
  });
  EXPECT_TRUE(contains(usage_error_of([&] { TcpStore(client_of(port)); }), "another program listens there"));
  program.join();
  // One that waits for the other to begin, as most do.
  const std::string text = text_of<TimeoutError>([&] { TcpStore({.port = port, .token = kToken, .timeout = 50ms}); });
  EXPECT_TRUE(contains(text, "did not greet"));
}

TEST(TcpStore, RefusesAServerThatDoesNotKnowTheToken) {
  const FileDescriptor listening = listen_tcp(resolve("127.0.0.1", 0).addresses.at(0));
  const int port = local_address(listening.get()).port();
  std::thread program([&] {
    wait_ready(listening.get(), POLLIN, Deadline::after(20s));
    RawPeer peer(accept_tcp(listening.get()).socket);
    const std::string nonce(kNonceBytes, 'n');
    peer.say(make_greeting(nonce));
    const std::string proof = peer.hear(kProofBytes);
    // It takes everybody, and could say back what it heard.
    peer.say(
        make_acceptance("a guess", nonce, proof.substr(kStoreMagic.size(), kNonceBytes), {std::string(16, 'i'), 1}));
    peer.hear(1);
  });
  EXPECT_TRUE(contains(usage_error_of([&] { TcpStore(client_of(port)); }), "does not know this process's token"));
  program.join();
}

TEST(TcpStore, ClosedTellsOfAServerThatIsGone) {
  auto server = std::make_unique<TcpStore>(serving());
  TcpStore client(client_of(server->port()));
  TcpStore idle(client_of(server->port()));
  std::vector<std::thread> waiting;
  for (int i = 0; i < 4; ++i)
    waiting.emplace_back([&, i] {
      const std::string text = text_of<Closed>([&] {
        client.set("waits " + std::to_string(i), "");
        client.get("never");
      });
      EXPECT_TRUE(contains(text, "the server is gone"));
      EXPECT_TRUE(contains(text, "127.0.0.1:"));
    });
  for (int i = 0; i < 4; ++i) client.wait({"waits " + std::to_string(i)});
  const int port = server->port();
  server.reset();
  for (std::thread& thread : waiting) thread.join();
  EXPECT_THROW(client.set("key", "value"), Closed);
  EXPECT_THROW(idle.check({"key"}), Closed);
  // Another one at its port is another table.
  TcpStore next(serving(port));
  EXPECT_THROW(idle.check({"key"}), Closed);
  EXPECT_THROW(client.num_keys(), Closed);
  EXPECT_EQ(TcpStore(client_of(port)).num_keys(), 0);
}

TEST(TcpStore, ANewConnectionDoesNotMeetAnotherTable) {
  auto old = std::make_unique<ServingProcess>();
  const int port = old->port();
  TcpStore client(client_of(port));
  old->stop();
  EXPECT_THROW(client.set("key", "value", Deadline::after(1ms)), TimeoutError);  // And so its connection is given up.
  old.reset();
  TcpStore server(serving(port));
  EXPECT_TRUE(contains(text_of<Closed>([&] { client.set("key", "value"); }), "another server listens there now"));
  EXPECT_FALSE(server.check({"key"}));
}

TEST(TcpStore, AKilledServerEndsWaits) {
  const ServingProcess server;
  TcpStore client(client_of(server.port()));
  TcpStore other(client_of(server.port()));
  std::thread waiting([&] { EXPECT_THROW(client.get("never"), Closed); });
  other.set("key", "value");
  server.signal(SIGKILL);
  waiting.join();
  EXPECT_THROW(other.get("key"), Closed);
}

TEST(TcpStore, AStoppedServerEndsNoStore) {
  const ServingProcess server;
  TcpStore client(client_of(server.port()));
  client.set("key", "value");
  server.stop();
  EXPECT_TRUE(contains(text_of<TimeoutError>([&] { client.get("key", Deadline::after(10ms)); }), "did not answer"));
  EXPECT_THROW(client.set("key", "another", Deadline::after(10ms)), TimeoutError);
  server.signal(SIGCONT);
  const std::string value = client.get("key");
  EXPECT_TRUE(value == "value" || value == "another") << value;
  client.set("key", "third");
  EXPECT_EQ(client.get("key"), "third");
}

TEST(TcpStore, RefusesWhatIsTooLong) {
  TcpStoreOptions options = serving();
  options.max_message_bytes = 10'000;
  TcpStore server(options);
  TcpStore client(client_of(server.port()));
  const std::string text = usage_error_of([&] { client.set("a large one", std::string(10'000, 'x')); });
  EXPECT_TRUE(contains(text, "a large one"));
  EXPECT_TRUE(contains(text, "max_message_bytes"));
  EXPECT_FALSE(client.check({"a large one"}));
  client.set("a", std::string(6'000, 'a'));
  client.set("b", std::string(6'000, 'b'));
  EXPECT_TRUE(contains(usage_error_of([&] { client.multi_get({"a", "b"}); }), "one by one"));
  EXPECT_EQ(client.get("a").size() + client.get("b").size(), 12'000u);
}

TEST(TcpStore, AForkIsRefused) {
  TcpStore server(serving());
  TcpStore client(client_of(server.port()));
  const pid_t pid = fork();
  if (pid == 0) {
    const bool is_right = contains(usage_error_of([&] { client.set("from", "fork"); }), "fork") &&
                          contains(usage_error_of([&] { server.set("from", "fork"); }), "fork");
    { const TcpStore mine(client_of(server.port())); }
    { const TcpStore copied = TcpStore(client_of(server.port())); }
    _exit(is_right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  client.set("key", "value");
  EXPECT_EQ(server.get("key"), "value");
}

TEST(TcpStore, AForkThatLivesOnKeepsNoClientWaiting) {
  auto server = std::make_unique<TcpStore>(serving());
  TcpStore client(client_of(server->port()));
  const pid_t pid = fork();  // It has copies of the server's sockets.
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    server.reset();  // Ends nothing of its parent's.
    for (;;) pause();
  }
  client.set("key", "value");
  EXPECT_EQ(server->get("key"), "value");
  const int port = server->port();
  server.reset();
  EXPECT_THROW(client.get("never"), Closed);
  EXPECT_THROW(TcpStore({.port = port, .token = kToken, .timeout = 20ms}), TimeoutError);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

}  // namespace
}  // namespace retinue
