#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collective/board/channel.h"
#include "collective/session/operation.h"
#include "collective/session/session.h"

namespace retinue {

/// As "tag 3".
std::string tag_text(int tag);

class SendOperation final : public Operation {
 public:
  SendOperation(OperationDriver& engine, ConstBytes bytes, int to, int with_tag, CallSite from)
      : Operation(engine, from), data(bytes), destination(to), tag(with_tag) {}
  ~SendOperation() override { drop_unless_done(); }

  bool is_late(int rank) const override { return rank == destination; }
  std::string describe() const override;

  ConstBytes data;
  int destination;
  int tag;
  std::uint64_t id = 0;  ///< Once it is announced.
  std::size_t sent = 0;
};

class ReceiveOperation final : public Operation {
 public:
  ReceiveOperation(OperationDriver& engine, Session& session, Bytes bytes, int from, int with_tag, CallSite at)
      : Operation(engine, at), buffer(bytes), source(from), tag(with_tag), session_(session) {}
  ~ReceiveOperation() override { drop_unless_done(); }

  bool takes(int from, int with_tag) const {
    return (source == kAnySource || source == from) && (tag == kAnyTag ? with_tag >= 0 : tag == with_tag);
  }
  /// Whether a message of this size has space, which a growing buffer makes.
  bool has_space(std::size_t bytes);
  bool is_late(int rank) const override;
  bool is_in_vain_without(int rank) const override;
  bool is_reported_late(int rank) const override;
  bool needs_only_one() const override { return source == kAnySource; }
  std::string describe() const override;

  Bytes buffer;
  int source;  ///< From when it has a message on: that one's.
  int tag;
  std::vector<std::byte>* grows = nullptr;  ///< In place of `buffer`: becomes as large as the message.
  std::size_t taken = 0;                    ///< Bytes of a message that comes in pieces.

 private:
  Session& session_;
};

/// Messages of one member to and from each other one, in the order in which they were begun for a pair of ranks and a
/// tag.
///
/// What is short goes into the receiver's channel, whether or not it waits. What is long stays with its sender until
/// the receiver wants it: it is read straight from job memory, or sent in pieces. A channel is emptied while its
/// messages can be for a receive that waits; what is for another then is kept aside.
///
/// Threads: one at a time.
class Messages final : public Background {
 public:
  Messages(Session& session, EndedOperations& ended);

  /// Makes what sends to this rank need: before the first of them. Errors: SharedMemoryExhausted.
  void prepare_send(int rank);
  /// Sends or receives without waiting and without an operation; false, and nothing done, where it can't be so.
  bool send_now(ConstBytes data, int destination, int tag, const CallSite& site);
  std::optional<Received> receive_now(Bytes buffer, int source, int tag);

  /// Whether a receive waits for such a message.
  bool expects(int source, int tag) const;

  void start(SendOperation& operation);
  void start(ReceiveOperation& operation);
  /// Does what can be done without waiting. A message that is too long breaks the group and ends its operation.
  void advance() override;
  std::uint64_t moves() const override { return moves_; }
  /// Ends all operations with `error`.
  void fail_all(const std::exception_ptr& error);
  /// Forgets a receive to which nothing has come; false where it is none, or too late.
  bool withdraw(Operation& operation);

  /// What this member waits for, if anything: its messages are taken out of their channels whatever lies before them.
  void set_awaited(const Awaited* awaited) { awaited_ = awaited; }

 private:
  /// A message that has come.
  struct Arrived {
    int source = 0;
    int tag = 0;
    std::uint64_t bytes = 0;
    std::vector<std::byte> data = {};
    bool announced = false;  ///< Then the next two instead of `data`.
    std::uint64_t id = 0;
    std::uint64_t place = kInNoJob;
    SeenSite site = {};
  };
  struct Reply {
    std::uint64_t id;
    AnswerKind kind;
    ReceiveOperation* operation;  ///< Ends with it; or null.
  };
  struct Peer {
    std::optional<ChannelSender> out;
    std::optional<ChannelReceiver> in;
    std::deque<SendOperation*> queued;
    std::vector<SendOperation*> announced;
    std::vector<SendOperation*> streamed;
    std::map<std::uint64_t, ReceiveOperation*> arriving;  ///< By the message's number.
    std::uint64_t announcements = 0;
    std::size_t early_bytes = 0;  ///< Of what it sent and is in `early_`.
    std::deque<Reply> replies;    ///< That the sender has no space for yet.
  };

  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  bool find_channel_from(int rank);
  /// Through the channel's space, and whole.
  bool goes_at_once(const Peer& to, std::size_t bytes) const;
  /// After each thing that it did with this rank's messages.
  void ring(int rank) {
    ++moves_;
    session_.waiter().posted_to(rank);
  }

  void advance_all();
  void push(int rank);
  bool announce(int rank, SendOperation& operation);
  void hear_answers(int rank);
  void reply(int rank);
  void stream(int rank);
  void drain(int rank);
  bool is_wanted(int source) const;
  void accept(int source, const Envelope& envelope, ConstBytes data);
  static Arrived head_of(int source, const Envelope& envelope);
  void keep(Arrived message, ConstBytes data);
  void accept_piece(int source, const Envelope& envelope, ConstBytes data);
  ReceiveOperation* match(int source, int tag);
  void give(ReceiveOperation& operation, const Arrived& message, ConstBytes data);
  void fetch(ReceiveOperation& operation, const Arrived& message);
  bool fits(ReceiveOperation& operation, const Arrived& message);
  void end(Operation& operation, std::exception_ptr error = nullptr);

  Session& session_;
  std::vector<Peer> peers_;
  std::list<ReceiveOperation*> posted_;  ///< In the order in which they were begun.
  std::list<Arrived> early_;             ///< Before their receives, in the order in which they came.
  EndedOperations& ended_;
  const Awaited* awaited_ = nullptr;
  int first_ = 0;  ///< Where to look first: behind the rank that was served last.
  std::size_t running_ = 0;
  std::uint64_t moves_ = 0;
};

}  // namespace retinue
