#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collective/communicator/operation_engine.h"

namespace retinue {

/// A member's calls that send and receive.
///
/// Threads: one at a time.
class MessageCalls {
 public:
  MessageCalls(Session& session, OperationEngine& engine)
      : session_(session), engine_(engine), messages_(engine.messages()) {}

  void send(ConstBytes data, int destination, int tag, CallSite site);
  /// `grows`: null, or what becomes as large as the message, in place of `buffer`.
  Received receive(Bytes buffer, std::vector<std::byte>* grows, int source, int tag, CallSite site);
  Received send_and_receive(const P2POp& out, const P2POp& in, CallSite site);
  Request start(const P2POp& message, CallSite site);
  std::vector<Request> start(std::span<const P2POp> messages, CallSite site);

 private:
  void check(const P2POp& message) const;
  /// All that can go wrong before a message is begun.
  void prepare(const P2POp& message);
  CallLog& log() { return engine_.log(); }
  Request start_prepared(const P2POp& message, CallSite site);

  Session& session_;
  OperationEngine& engine_;
  Messages& messages_;
};

}  // namespace retinue
