// What those who connect to a TcpStore's server may do: nobody disturbs the others.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/store/tcp_store.h"
#include "store/places.h"
#include "store/raw_member.h"
#include "support/fork_shared.h"
#include "support/ranks.h"
#include "support/wait_until.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;
using test::kToken;
using test::RawMember;
using test::RawPeer;

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

class TcpServer : public testing::Test {
 protected:
  ~TcpServer() override {
    EXPECT_TRUE(serves()) << "the server serves no more";
    server_.reset();
    EXPECT_EQ(open_descriptors(), descriptors_);
  }

  bool serves() {
    TcpStore member({.port = port(), .token = kToken});
    const std::int64_t sum = member.add("still there", 1);
    return server_->add("still there", 1) == sum + 1;
  }
  int port() const { return server_->port(); }

  std::ptrdiff_t descriptors_ = open_descriptors();
  std::unique_ptr<TcpStore> server_ =
      std::make_unique<TcpStore>(TcpStoreOptions{.is_server = true, .token = kToken, .handshake_timeout = 500ms});
};

TEST_F(TcpServer, TellsStrangersNothing) {
  for (const std::string& words :
       {std::string("GET / HTTP/1.1\r\nHost: here\r\n\r\n"), std::string(1000, '\0'),
        std::string(kStoreMagic).append("guess"),
        make_proof("another token", std::string(32, 'a'), std::string(32, 'b')), std::string(100'000, 'x')}) {
    RawPeer stranger(port());
    ASSERT_EQ(stranger.hear(kGreetingBytes).size(), kGreetingBytes);
    stranger.say(words);
    EXPECT_EQ(stranger.hear(1), "") << "it answered to " << words.substr(0, 20);
  }
}

TEST_F(TcpServer, TakesNoProofTwice) {
  RawPeer member(port());
  const std::string nonce = member.hear(kGreetingBytes).substr(kStoreMagic.size());
  const std::string proof = make_proof(kToken, nonce, std::string(kNonceBytes, 'c'));
  member.say(proof);
  EXPECT_EQ(member.hear(kAcceptanceBytes).size(), kAcceptanceBytes);
  RawPeer stranger(port());
  EXPECT_NE(stranger.hear(kGreetingBytes).substr(kStoreMagic.size()), nonce);
  stranger.say(proof);
  EXPECT_EQ(stranger.hear(1), "");
}

TEST_F(TcpServer, ClosesThoseWhoProveNothingInTime) {
  RawPeer silent(port());
  RawPeer half(port());
  half.say(std::string(kStoreMagic));
  EXPECT_EQ(silent.hear(1000).size(), kGreetingBytes);
  EXPECT_EQ(half.hear(1000).size(), kGreetingBytes);
}

TEST_F(TcpServer, TakesMembersAmongManyHalfOpenConnections) {
  std::vector<RawPeer> strangers;
  for (int i = 0; i < 600; ++i) strangers.emplace_back(port());
  EXPECT_TRUE(serves());
}

/// Those would have an hour.
TEST_F(TcpServer, DropsTheOldestStrangersWhereManyKeepMembersWaiting) {
  TcpStore patient({.is_server = true, .token = kToken, .handshake_timeout = std::chrono::hours(1)});
  std::vector<RawPeer> strangers;
  for (int i = 0; i < 600; ++i) strangers.emplace_back(patient.port());
  TcpStore member({.port = patient.port(), .token = kToken});
  EXPECT_EQ(member.add("came", 1), 1);
  EXPECT_EQ(strangers[0].hear(1000).size(), kGreetingBytes);  // And then the end.
}

TEST_F(TcpServer, WaitsForSlowMembersWithoutKeepingOthersWaiting) {
  const std::string request = RawMember::set_request("slow", std::string(300, 's'));
  RawPeer slow(port());
  const std::string nonce = slow.hear(kGreetingBytes).substr(kStoreMagic.size());
  for (const char c : make_proof(kToken, nonce, std::string(kNonceBytes, 'c'))) slow.say({&c, 1});
  EXPECT_EQ(slow.hear(kAcceptanceBytes).size(), kAcceptanceBytes);
  for (std::size_t i = 0; i < request.size(); ++i) {
    slow.say(request.substr(i, 1));
    if (i % 50 == 0) {
      EXPECT_TRUE(serves());
    }
    EXPECT_FALSE(server_->check({"slow"}) && i + 1 < request.size());
  }
  EXPECT_EQ(server_->get("slow"), std::string(300, 's'));
}

TEST_F(TcpServer, ServesOthersWhileOneDoesNotReadItsAnswer) {
  const std::string large(20'000'000, 'x');
  server_->set("large", large);
  RawMember lazy(port(), kToken);
  lazy.say(RawMember::get_request("large"));
  EXPECT_TRUE(serves());
  const std::string heard = lazy.hear(kFrameHead + kFrameLeast + 4 + large.size());
  const std::optional<Frame> answer = decode(std::string_view(heard).substr(kFrameHead));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->strings.at(0), large);
}

TEST_F(TcpServer, ClosesMembersThatSpeakNonsense) {
  const std::string set = RawMember::set_request("key", "value");
  for (const std::string& words :
       {std::string("\x05\0\0\0hello", 9), set + set, std::string(4, '\0'), encode({99, 0, {"key"}}),
        encode({1, 0, {"only a key"}}), encode({2, 0, {}}), RawMember::get_request("never") + "more"}) {
    RawMember member(port(), kToken);
    member.say(words);
    EXPECT_FALSE(member.hear_answer().has_value());
  }
  EXPECT_FALSE(server_->check({"key"}));
}

TEST_F(TcpServer, RefusesWhatIsTooLongAndGoesOn) {
  RawMember member(port(), kToken);
  std::string large;
  large.resize((std::size_t{64} << 20) + 1, 'x');
  member.say(RawMember::set_request("large", large));
  const std::optional<Frame> refusal = member.hear_answer();
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->kind, static_cast<std::uint8_t>(Answer::kRefused));
  member.say(RawMember::set_request("small", "x"));
  EXPECT_EQ(member.hear_answer()->kind, static_cast<std::uint8_t>(Answer::kDone));
  EXPECT_FALSE(server_->check({"large"}));
  EXPECT_TRUE(server_->check({"small"}));
}

TEST_F(TcpServer, ForgetsMembersThatGo) {
  const std::string request = RawMember::set_request("half", std::string(1000, 'h'));
  for (std::size_t bytes : {std::size_t{1}, std::size_t{4}, std::size_t{500}, request.size() - 1}) {
    RawMember member(port(), kToken);
    member.say(request.substr(0, bytes));
  }
  {
    RawMember waiting(port(), kToken);
    waiting.say(RawMember::get_request("later"));
  }
  server_->set("later", "1");
  EXPECT_FALSE(server_->check({"half"}));
}

TEST_F(TcpServer, AMemberKilledAnywhereLeavesWholeValues) {
  constexpr int kRounds = 10;
  const test::ForkShared<std::atomic<int>> sets;
  const test::ForkShared<std::atomic<int>> turn;
  // All at first: a fork beside a server that serves may find the sanitizer's heap locked for ever.
  std::vector<pid_t> members;
  for (int round = 0; round < kRounds; ++round) {
    members.push_back(fork());
    if (members.back() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!test::wait_until([&] { return turn->load() == round + 1; })) _exit(1);
    TcpStore member({.port = port(), .token = kToken});
    for (char c = 'a';; c = c == 'z' ? 'a' : static_cast<char>(c + 1)) {
      member.set("value", std::string(500'000, c));
      sets->fetch_add(1);
    }
  }
  for (int round = 0; round < kRounds; ++round) {
    const int before = sets->load();
    turn->store(round + 1);
    EXPECT_TRUE(test::wait_until([&] { return sets->load() > before + round; }));
    const pid_t pid = members[static_cast<std::size_t>(round)];
    kill(pid, SIGKILL);
    ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
    const std::string value = server_->get("value");
    EXPECT_EQ(value, std::string(500'000, value.front()));
  }
}

TEST_F(TcpServer, ServesAThousandWhoWaitAtOnce) {
  const int count = test::is_sanitized() ? 150 : 1000;
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit raised{before.rlim_max, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  std::vector<std::thread> members;
  for (int i = 0; i < count; ++i)
    members.emplace_back([&, i] {
      TcpStore member({.port = port(), .token = kToken});
      member.set("member " + std::to_string(i), std::to_string(i));
      member.add("ready", 1);
      EXPECT_EQ(member.get("go"), "now");
      EXPECT_EQ(member.get("member " + std::to_string((i + 1) % count)), std::to_string((i + 1) % count));
      member.add("done", 1);
    });
  EXPECT_TRUE(test::wait_until([&] { return server_->add("ready", 0) == count; }));
  EXPECT_FALSE(server_->check({"done"}));
  server_->set("go", "now");
  for (std::thread& member : members) member.join();
  EXPECT_EQ(server_->add("done", 0), count);
  EXPECT_EQ(server_->num_keys(), count + 3);
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(TcpServer, GoesOnWhereDescriptorsRunOut) {
  test::ForkShared<std::atomic<int>> small_port;
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const rlimit few{40, 40};
    setrlimit(RLIMIT_NOFILE, &few);
    const TcpStore store({.is_server = true, .token = kToken, .handshake_timeout = std::chrono::hours(1)});
    small_port->store(store.port());
    for (;;) pause();
  }
  ASSERT_TRUE(test::wait_until([&] { return small_port->load() != 0; }));
  {
    std::vector<RawPeer> strangers;
    for (int i = 0; i < 100; ++i) strangers.emplace_back(small_port->load());
    TcpStore member({.port = small_port->load(), .token = kToken});
    member.set("key", "value");
    EXPECT_EQ(member.get("key"), "value");
  }
  kill(pid, SIGKILL);
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
}

}  // namespace
}  // namespace retinue
