#include "retinue/collective/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "collective/messages.h"
#include "collective/paths.h"
#include "collective/select.h"
#include "collective/session.h"
#include "retinue/collective/pending.h"

namespace retinue {

namespace {

/// What ends a wait for an operation.
class AwaitedOperation final : public Awaited {
 public:
  AwaitedOperation(Messages& messages, const Operation& operation) : messages_(messages), operation_(operation) {}

  bool arrived() override {
    messages_.advance();
    return operation_.done();
  }
  bool is_late(int rank) const override { return operation_.is_late(rank); }
  bool is_in_vain_without(int rank) const override { return operation_.is_in_vain_without(rank); }

 private:
  Messages& messages_;
  const Operation& operation_;
};

}  // namespace

class Communicator::Impl final : public Engine {
 public:
  Impl(JobGroup group, std::chrono::nanoseconds timeout) : session_(std::move(group), timeout), messages_(session_) {
    session_.waiter().set_background(&messages_);
  }
  ~Impl() { messages_.fail_all(std::make_exception_ptr(Closed("the communicator was destroyed before this ended"))); }

  Session& session() { return session_; }

  void begin(const CollectiveCall& what, CallSite site) {
    if (pending_) throw UsageError("a collective was begun on this communicator and is not finished yet");
    call_ = checked_call(what, session_.rank(), session_.size(), site);
    session_.publish(call_);
    pending_ = true;
  }

  /// The same with lists of parts that will be gone when the call is finished.
  void begin_with_copies(CollectiveCall what, CallSite site) {
    if (!pending_) {
      inputs_.assign(what.inputs.begin(), what.inputs.end());
      outputs_.assign(what.outputs.begin(), what.outputs.end());
      what.inputs = inputs_;
      what.outputs = outputs_;
    }
    begin(what, site);
  }

  void finish() {
    pending_ = false;
    complete(session_.await_arrival());
    session_.end_call();
  }

  void call_back() { messages_.call_back(); }

  void abandon() {
    pending_ = false;
    session_.abandon();
  }

  void check(const P2POp& message) const {
    const bool sends = message.kind == P2POp::Kind::kSend;
    const std::string_view call = sends ? "send" : "recv";
    const bool any = !sends && message.peer == kAnySource;
    if (!any && (message.peer < 0 || message.peer >= session_.size()))
      throw UsageError(
          fmt::format("{}: rank {} is outside of the group's [0, {})", call, message.peer, session_.size()));
    if (message.tag < 0 && message.tag != detail::kReplyTag && (sends || message.tag != kAnyTag))
      throw UsageError(fmt::format("{}: tag {} is negative", call, message.tag));
  }

  void send(ConstBytes data, int destination, int tag, CallSite site) {
    prepare(P2POp::isend(data, destination, tag));
    if (messages_.send_now(data, destination, tag, site)) return messages_.call_back();
    if (destination == session_.rank()) {
      messages_.advance();
      if (!messages_.expects(destination, tag))
        throw UsageError(fmt::format(
            "send: rank {} sends {} bytes to itself and has not begun to receive them; use isend or sendrecv",
            session_.rank(), data.size()));
    }
    SendOperation operation(*this, data, destination, tag, site);
    messages_.start(operation);
    finish(operation);
  }

  Received receive(Bytes buffer, std::vector<std::byte>* grows, int source, int tag, CallSite site) {
    prepare(P2POp::irecv(buffer, source, tag));
    if (grows == nullptr)
      if (const auto received = messages_.receive_now(buffer, source, tag)) {
        messages_.call_back();
        return *received;
      }
    ReceiveOperation operation(*this, session_, buffer, source, tag, site);
    operation.grows = grows;
    messages_.start(operation);
    if (source == session_.rank() || (source == kAnySource && session_.size() == 1)) {
      messages_.advance();
      if (messages_.withdraw(operation))
        throw UsageError(fmt::format("recv: rank {} has sent itself no such message, and waits; use irecv or sendrecv",
                                     session_.rank()));
    }
    finish(operation);
    return operation.received;
  }

  Received send_and_receive(const P2POp& out, const P2POp& in, CallSite site) {
    check(in);
    prepare(out);
    ReceiveOperation receive(*this, session_, in.buffer, in.peer, in.tag, site);
    SendOperation send(*this, out.data, out.peer, out.tag, site);
    messages_.start(receive);
    messages_.start(send);
    wait_until_done(receive, std::chrono::nanoseconds::max());
    finish(send);
    if (receive.error()) std::rethrow_exception(receive.error());
    return receive.received;
  }

  std::vector<Request> start(std::span<const P2POp> messages, CallSite site) {
    for (const P2POp& message : messages) check(message);
    for (const P2POp& message : messages) prepare(message);
    std::vector<Request> requests;
    for (const P2POp& message : messages) requests.push_back(start_prepared(message, site));
    messages_.call_back();
    return requests;
  }

  Request start(const P2POp& message, CallSite site) {
    prepare(message);
    Request request = start_prepared(message, site);
    messages_.call_back();
    return request;
  }

  void advance(Operation& operation) override {
    messages_.advance();
    // Now and then, because it costs more.
    if (!operation.done() && ++advances_ % kAdvancesPerLook == 0)
      wait_until_done(operation, std::chrono::nanoseconds(0));
    messages_.call_back();
  }

  bool wait(Operation& operation, std::chrono::nanoseconds time) override {
    const bool done = wait_until_done(operation, time);
    messages_.call_back();
    return done;
  }

  void drop(Operation& operation) noexcept override {
    if (messages_.withdraw(operation)) return;
    session_.fail_message(fmt::format("rank {} dropped a message that it had begun and not finished", session_.rank()));
    messages_.fail_all(session_.failure());
  }

 private:
  static constexpr unsigned kAdvancesPerLook = 64;

  void complete(const Arrival& arrival) {
    if (call_.pattern.result == Pattern::Result::kNothing) return;
    if (session_.size() == 1) return run_alone(call_);
    const Path path = select_path(call_, session_.size(), arrival);
    const bool has_slices =
        call_.shape.kind == CollectiveKind::kAllReduce || call_.shape.kind == CollectiveKind::kReduce;
    if (has_slices && (path == Path::kDirect || path == Path::kChunked))
      reduce_in_slices(session_, call_, path);
    else
      exchange(session_, call_, path, arrival);
  }

  /// All that can go wrong before a message is begun.
  void prepare(const P2POp& message) {
    check(message);
    session_.check_usable();
    session_.waiter().note_cpu();
    if (message.kind == P2POp::Kind::kSend) messages_.prepare_send(message.peer);
  }

  Request start_prepared(const P2POp& message, CallSite site) {
    if (message.kind == P2POp::Kind::kSend) {
      auto send = std::make_shared<SendOperation>(*this, message.data, message.peer, message.tag, site);
      messages_.start(*send);
      return Request(std::move(send));
    }
    auto receive = std::make_shared<ReceiveOperation>(*this, session_, message.buffer, message.peer, message.tag, site);
    messages_.start(*receive);
    return Request(std::move(receive));
  }

  void finish(Operation& operation) {
    wait_until_done(operation, std::chrono::nanoseconds::max());
    messages_.call_back();
    if (operation.error()) std::rethrow_exception(operation.error());
  }

  bool wait_until_done(Operation& operation, std::chrono::nanoseconds time) {
    if (!operation.done() && session_.failure()) messages_.fail_all(session_.failure());
    if (operation.done()) return true;
    AwaitedOperation awaited(messages_, operation);
    const auto timeout = session_.waiter().timeout();
    if (time > std::chrono::nanoseconds(0)) messages_.set_awaited(&operation);
    const Waiter::Outcome outcome =
        session_.waiter().wait(awaited, JobDeadline::after(session_.memory().header(), std::min(time, timeout)));
    messages_.set_awaited(nullptr);
    if (outcome == Waiter::Outcome::kArrived) return true;
    if (outcome == Waiter::Outcome::kTimedOut && time < timeout) return false;
    try {
      session_.fail_waiting(outcome, awaited, operation.describe());
    } catch (...) {
      messages_.fail_all(std::current_exception());
    }
    return true;
  }

  Session session_;
  Messages messages_;
  Call call_;
  std::vector<ConstBytes> inputs_;
  std::vector<Bytes> outputs_;
  bool pending_ = false;
  unsigned advances_ = 0;
};

void run_alone(const CollectiveCall& call) {
  const Call checked = checked_call(call, 0, 1, {"", 0});
  if (checked.pattern.result != Pattern::Result::kNothing) run_alone(checked);
}

Communicator::Communicator(JobGroup group, CommunicatorOptions options)
    : impl_(std::make_unique<Impl>(std::move(group), options.timeout)) {}
Communicator::~Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;

int Communicator::rank() const noexcept {
  return impl_->session().rank();
}
int Communicator::size() const noexcept {
  return impl_->session().size();
}
const JobGroup& Communicator::group() const noexcept {
  return impl_->session().group();
}
void Communicator::set_timeout(std::chrono::nanoseconds timeout) {
  impl_->session().set_timeout(timeout);
}

void Communicator::run(const CollectiveCall& call, CallSite site) {
  impl_->begin(call, site);
  impl_->finish();
  impl_->call_back();
}

PendingCollective Communicator::start(const CollectiveCall& call, CallSite site) {
  impl_->begin_with_copies(call, site);
  return PendingCollective(impl_.get());
}

void Communicator::send_bytes(ConstBytes data, int destination, int tag, CallSite site) {
  impl_->send(data, destination, tag, site);
}

Received Communicator::recv_bytes(Bytes buffer, int source, int tag, CallSite site) {
  return impl_->receive(buffer, nullptr, source, tag, site);
}

Received Communicator::recv_any_size(std::vector<std::byte>& data, int source, int tag, CallSite site) {
  return impl_->receive({}, &data, source, tag, site);
}

Received Communicator::sendrecv_bytes(ConstBytes data, int destination, Bytes buffer, int source, int tag,
                                      CallSite site) {
  return impl_->send_and_receive(P2POp::isend(data, destination, tag), P2POp::irecv(buffer, source, tag), site);
}

Request Communicator::begin(const P2POp& message, CallSite site) {
  return impl_->start(message, site);
}

std::vector<Request> Communicator::batch_isend_irecv(std::span<const P2POp> messages, CallSite site) {
  return impl_->start(messages, site);
}

void Communicator::check_size(std::string_view call, std::size_t elements, std::size_t wanted) {
  if (elements != wanted)
    throw UsageError(fmt::format("{}: a buffer holds {} elements where {} are needed", call, elements, wanted));
}

PendingCollective::PendingCollective(PendingCollective&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)) {}

PendingCollective::~PendingCollective() {
  if (owner_ != nullptr) owner_->abandon();
}

bool PendingCollective::ready(std::chrono::nanoseconds budget) const {
  return owner_ == nullptr || owner_->session().spin_for_arrival(budget);
}

void PendingCollective::finish() {
  if (owner_ == nullptr) throw UsageError("a collective can be finished only once");
  std::exchange(owner_, nullptr)->finish();
}

}  // namespace retinue
