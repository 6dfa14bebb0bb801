// What stores read: of the network, and of a file that others write too.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <set>
#include <string>
#include <string_view>

#include "fuzz/harness.h"
#include "os/files/file_descriptor.h"
#include "store/file_log.h"
#include "store/frame.h"
#include "store/handshake.h"
#include "store/store_connection.h"
#include "store/store_service.h"
#include "store/store_session.h"

namespace retinue::fuzz {
namespace {

constexpr std::size_t kMaxFrame = 4096;
constexpr char kToken[] = "the job's";

std::string text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A server without sockets: some members, and a stranger.
class Server {
 public:
  static constexpr StoreService::Client kMembers = 3;

  Server() {
    for (StoreService::Client member = 0; member < kMembers; ++member) sessions_.push_back(new_member());
    sessions_.emplace_back(side_, nonce_);
  }

  void hear(StoreService::Client client, std::string_view words) {
    StoreSession& session = sessions_[client];
    const std::optional<std::string> reply = session.receive(words);
    bool is_sane = reply.has_value();
    if (client == kMembers) require(!session.is_member(), "a stranger who became a member");
    if (std::optional<Frame> request = session.take_request(); is_sane && request)
      is_sane = service_.carry_out(client, *std::move(request), now_);
    if (!is_sane) {
      service_.forget(client);
      session = client == kMembers ? StoreSession(side_, nonce_) : new_member();
    }
    answer();
  }
  void let_pass(std::chrono::nanoseconds time) {
    now_ += time;
    service_.end_waits(now_);
    require(service_.next_end().is_never() || service_.next_end().when() > now_, "a wait that goes on after its end");
    answer();
  }

 private:
  StoreSession new_member() {
    StoreSession session(side_, nonce_);
    const auto reply = session.receive(make_proof(kToken, nonce_, std::string(kNonceBytes, 'c')));
    require(reply && check_acceptance(kToken, nonce_, std::string(kNonceBytes, 'c'), *reply), "a proof that is none");
    return session;
  }
  void answer() {
    std::set<StoreService::Client> answered;
    for (const auto& [client, bytes] : service_.answers()) {
      require(client < kMembers && answered.insert(client).second, "an answer that nobody asked for");
      require(!service_.waits(client), "an answer to one who waits on");
      require(decode(std::string_view(bytes).substr(kFrameHead)).has_value(), "an answer that is none");
      sessions_[client].answered();
    }
    service_.answers().clear();
  }

  ServerSide side_{kToken, {std::string(kServerIdBytes, 'i'), kMaxFrame}};
  std::string nonce_ = std::string(kNonceBytes, 's');
  StoreService service_{kMaxFrame};
  StoreService::Now now_{std::chrono::seconds(1)};
  std::vector<StoreSession> sessions_;
};

}  // namespace

void store_server(Bytes bytes) {
  Server server;
  Input input(bytes);
  while (!input.is_empty()) {
    const auto who = input.number<std::uint8_t>();
    if (who % 8 > Server::kMembers)
      server.let_pass(std::chrono::nanoseconds(input.number<std::uint16_t>()));
    else
      server.hear(who % 8, text_of(input.take(input.number<std::uint8_t>())));
  }
}

void store_client(Bytes bytes) {
  int ends[2];
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0, "no sockets");
  FileDescriptor mine(ends[0]);
  const FileDescriptor server(ends[1]);
  Input input(bytes);
  const bool is_member = input.number<std::uint8_t>() % 2 != 0;
  const std::string words = text_of(input.take(kMaxFrame * 2));
  require(send(server.get(), words.data(), words.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(words.size()),
          "no room");
  shutdown(server.get(), SHUT_WR);
  try {
    if (is_member) {
      StoreConnection connection(std::move(mine), {std::string(kServerIdBytes, 'i'), kMaxFrame});
      while (connection.call("request", Deadline::never())) continue;
    } else {
      shake_hands(mine.get(), "there", {kToken, "a test"}, Deadline::never());
      require(false, "a server without the token that was trusted");
    }
  } catch (const Error&) {
    // It is no server of the job.
  } catch (const Refused&) {
    // Nor is it one.
  } catch (const ConnectionLost&) {
    // It says nothing more, or nothing that is an answer.
  }
}

void store_file(Bytes bytes) {
  Input input(bytes);
  const auto records = input.number<std::uint8_t>();
  std::string text = encode_beginning(input.number<std::uint8_t>(), "job");
  // Records whose checksums are right, whatever they say; no input would find them.
  for (int i = 0; i < records && !input.is_empty(); ++i) {
    const auto kind = static_cast<Record>(input.number<std::uint8_t>());
    const auto number = input.number<std::int8_t>();
    std::vector<std::string> strings(input.number<std::uint8_t>() % 4);
    for (std::string& string : strings) string = text_of(input.take(input.number<std::uint8_t>() % 16));
    text += encode_record(kind, number, strings);
  }
  const std::size_t cut = input.number<std::uint16_t>() % (text.size() + 1);
  if (input.number<std::uint8_t>() % 2 != 0) text = text.substr(0, cut);
  text += text_of(input.rest());

  LogState at_once;
  const LogState::End end = at_once.take(text);
  require(at_once.taken_bytes() <= text.size(), "bytes that there aren't");
  require((end == LogState::End::kWhole) == (at_once.taken_bytes() == text.size()), "records that are half whole");
  require(static_cast<std::int64_t>(at_once.present().size()) <= at_once.joined(), "members that never joined");
  // In two parts, as a reader finds it that comes while others write.
  LogState in_parts;
  static_cast<void>(in_parts.take(std::string_view(text).substr(0, std::min(cut, text.size()))));
  static_cast<void>(in_parts.take(std::string_view(text).substr(in_parts.taken_bytes())));
  require(in_parts.taken_bytes() == at_once.taken_bytes(), "parts that are not the whole");
  require(in_parts.table().size() == at_once.table().size(), "parts that say something else");
}

}  // namespace retinue::fuzz
