#include "retinue/collective/communicator.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "collective/message_engine.h"
#include "collective/paths.h"
#include "collective/select.h"
#include "collective/session.h"
#include "retinue/collective/pending.h"

namespace retinue {

class Communicator::Impl {
 public:
  Impl(JobGroup group, const CommunicatorOptions& options) : session_(std::move(group), options), messages_(session_) {}

  Session& session() { return session_; }
  MessageEngine& messages() { return messages_; }

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
    try {
      complete(session_.await_arrival());
    } catch (...) {
      messages_.after_collective();
      throw;
    }
    session_.end_call();
    messages_.after_collective();
  }

  void abandon() {
    pending_ = false;
    session_.abandon();
    messages_.after_collective();
  }

 private:
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

  Session session_;
  MessageEngine messages_;
  Call call_;
  std::vector<ConstBytes> inputs_;
  std::vector<Bytes> outputs_;
  bool pending_ = false;
};

void run_alone(const CollectiveCall& call) {
  const Call checked = checked_call(call, 0, 1, {"", 0});
  if (checked.pattern.result != Pattern::Result::kNothing) run_alone(checked);
}

Communicator::Communicator(JobGroup group, CommunicatorOptions options)
    : impl_(std::make_unique<Impl>(std::move(group), options)) {}
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

void Communicator::interrupt() noexcept {
  impl_->messages().interrupt();
}

void Communicator::run(const CollectiveCall& call, CallSite site) {
  impl_->begin(call, site);
  impl_->finish();
}

PendingCollective Communicator::start(const CollectiveCall& call, CallSite site) {
  impl_->begin_with_copies(call, site);
  return PendingCollective(impl_.get());
}

void Communicator::send_bytes(ConstBytes data, int destination, int tag, CallSite site) {
  impl_->messages().send(data, destination, tag, site);
}

Received Communicator::recv_bytes(Bytes buffer, int source, int tag, CallSite site) {
  return impl_->messages().receive(buffer, nullptr, source, tag, site);
}

Received Communicator::recv_any_size(std::vector<std::byte>& data, int source, int tag, CallSite site) {
  return impl_->messages().receive({}, &data, source, tag, site);
}

Received Communicator::sendrecv_bytes(ConstBytes data, int destination, Bytes buffer, int source, int tag,
                                      CallSite site) {
  return impl_->messages().send_and_receive(P2POp::isend(data, destination, tag), P2POp::irecv(buffer, source, tag),
                                            site);
}

Request Communicator::begin(const P2POp& message, CallSite site) {
  return impl_->messages().start(message, site);
}

std::vector<Request> Communicator::batch_isend_irecv(std::span<const P2POp> messages, CallSite site) {
  return impl_->messages().start(messages, site);
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
