#include "retinue/collective/communicator.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "collective/message_engine.h"
#include "collective/path_probe.h"
#include "collective/paths.h"
#include "collective/select.h"
#include "collective/session.h"
#include "retinue/collective/explain.h"
#include "retinue/collective/pending.h"

namespace retinue {

class Communicator::Impl {
 public:
  Impl(JobGroup group, const CommunicatorOptions& options) : session_(std::move(group), options), messages_(session_) {
    measure_paths(session_, [this](const CollectiveCall& call) { run(call, {}); });
    session_.note_opening();
  }

  Session& session() { return session_; }
  MessageEngine& messages() { return messages_; }

  void run(const CollectiveCall& what, CallSite site) {
    check_nothing_pends();
    const Call call = checked_call(what, session_.rank(), session_.size(), site);
    finish([&] {
      session_.publish(call);
      const bool all_taken = take_as_they_come(session_, call);
      const Arrival arrival = arrive(call);
      if (!all_taken) complete(call, arrival);
    });
  }

  /// `what`, and lists of parts in it, may be gone when the call is finished.
  void begin(const CollectiveCall& what, CallSite site) {
    check_nothing_pends();
    begun_ = what;
    inputs_.assign(what.inputs.begin(), what.inputs.end());
    outputs_.assign(what.outputs.begin(), what.outputs.end());
    begun_.inputs = inputs_;
    begun_.outputs = outputs_;
    const Call call = checked_call(begun_, session_.rank(), session_.size(), site);
    telling_messages([&] { session_.publish(call); });
    pending_.emplace(call);
  }

  void finish() {
    const Call call = *pending_;
    pending_.reset();
    finish([&] { complete(call, session_.await_arrival(call)); });
  }

  void abandon() {
    pending_.reset();
    session_.abandon();
    messages_.after_collective();
  }

 private:
  void check_nothing_pends() const {
    if (pending_) throw UsageError("a collective was begun on this communicator and is not finished yet");
  }

  /// Waits for those without whom this member can't be done with the call.
  Arrival arrive(const Call& call) {
    const RankRange needed = needed_lines(call, session_.rank(), session_.size());
    const bool all = needed.last - needed.first == session_.size();
    if (all || (is_reduction(call.shape.kind) && !all_stage_first(session_.paths(), call, session_.size())))
      return session_.await_arrival(call);
    const Arrival arrival = session_.await_arrival(call, needed);
    const Path path = select_path(call, session_.size(), arrival);
    return path == Path::kDirect || path == Path::kChunked ? session_.await_arrival(call) : arrival;
  }

  /// Messages under way learn of a failure.
  template <typename Part>
  void telling_messages(Part part) {
    try {
      part();
    } catch (...) {
      messages_.after_collective();
      throw;
    }
  }

  template <typename Rest>
  void finish(Rest rest) {
    telling_messages(rest);
    session_.end_call();
    messages_.after_collective();
  }

  void complete(const Call& call, const Arrival& arrival) {
    if (call.pattern.result == Pattern::Result::kNothing) return;
    if (session_.size() == 1) return run_alone(call);
    const Path path = select_path(call, session_.size(), arrival);
    if (has_slices(call, session_.size(), path))
      reduce_in_slices(session_, call, path);
    else if (call.shape.kind == CollectiveKind::kAllReduceCoalesced)
      reduce_coalesced(session_, call, path);
    else
      exchange(session_, call, path, arrival);
  }

  Session session_;
  MessageEngine messages_;
  CollectiveCall begun_;
  std::vector<ConstBytes> inputs_;
  std::vector<Bytes> outputs_;
  std::optional<Call> pending_;
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
  impl_->run(call, site);
}

PendingCollective Communicator::start(const CollectiveCall& call, CallSite site) {
  impl_->begin(call, site);
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

void detail::check_elements(std::string_view call, std::size_t elements, std::size_t wanted) {
  if (elements != wanted)
    throw UsageError(fmt::format("{}: a buffer holds {} elements where {} are needed", call, elements, wanted));
}

std::string explain_paths(const Communicator& group) {
  const Session& session = group.impl_->session();
  return explain_paths(session.paths(), session.paths_source(), session.size());
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
