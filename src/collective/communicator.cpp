#include "retinue/collective/communicator.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "collective/paths.h"
#include "collective/select.h"
#include "collective/session.h"
#include "retinue/collective/pending.h"

namespace retinue {
namespace {

Call barrier_call(CallSite site) {
  return {.shape = {.kind = CallKind::kBarrier}, .site = site};
}

Call all_reduce_call(void* data, std::size_t count, Dtype dtype, ReduceOp op, CallSite site) {
  if (data == nullptr && count > 0) throw UsageError("all_reduce: data is null");
  if (static_cast<unsigned>(dtype) > static_cast<unsigned>(Dtype::kFloat64) ||
      static_cast<unsigned>(op) > static_cast<unsigned>(ReduceOp::kProduct))
    throw UsageError(fmt::format("all_reduce: no such dtype ({}) or reduction ({})", static_cast<unsigned>(dtype),
                                 static_cast<unsigned>(op)));
  if (count > std::numeric_limits<std::size_t>::max() / size_of(dtype))
    throw UsageError(fmt::format("all_reduce: {} elements of {} don't fit in memory", count, name_of(dtype)));
  return {.shape = {.kind = CallKind::kAllReduce, .dtype = dtype, .op = op, .count = count},
          .input = data,
          .output = data,
          .site = site};
}

Call broadcast_call(const Session& session, void* data, std::size_t bytes, int root, CallSite site) {
  if (data == nullptr && bytes > 0) throw UsageError("broadcast: data is null");
  if (root < 0 || root >= session.size())
    throw UsageError(fmt::format("broadcast: root {} of a group of {}", root, session.size()));
  return {.shape = {.kind = CallKind::kBroadcast, .root = static_cast<std::uint16_t>(root), .count = bytes},
          .input = root == session.rank() ? data : nullptr,
          .output = data,
          .site = site};
}

Call all_gather_call(const void* input, void* output, std::size_t bytes, CallSite site) {
  if ((input == nullptr || output == nullptr) && bytes > 0) throw UsageError("all_gather: a buffer is null");
  return {.shape = {.kind = CallKind::kAllGather, .count = bytes}, .input = input, .output = output, .site = site};
}

}  // namespace

class Communicator::Impl {
 public:
  Impl(JobGroup group, std::chrono::nanoseconds timeout) : session_(std::move(group), timeout) {}

  Session& session() { return session_; }

  void begin(const Call& call) {
    if (pending_) throw UsageError("a collective was begun on this communicator and is not finished yet");
    session_.publish(call);
    call_ = call;
    pending_ = true;
  }

  void finish() {
    pending_ = false;
    const std::uint8_t places = session_.await_arrival();
    const Path path = select_path(call_.shape, session_.size(), places);
    switch (call_.shape.kind) {
      case CallKind::kAllReduce:
        return run_all_reduce(session_, call_, path);
      case CallKind::kBroadcast:
        return run_broadcast(session_, call_, path);
      case CallKind::kAllGather:
        return run_all_gather(session_, call_, path);
      default:
        return;
    }
  }

  void run(const Call& call) {
    begin(call);
    finish();
  }

  void abandon() {
    pending_ = false;
    session_.abandon();
  }

 private:
  Session session_;
  Call call_;
  bool pending_ = false;
};

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

void Communicator::barrier(CallSite site) {
  impl_->run(barrier_call(site));
}

void Communicator::all_reduce(void* data, std::size_t count, Dtype dtype, ReduceOp op, CallSite site) {
  impl_->run(all_reduce_call(data, count, dtype, op, site));
}

void Communicator::broadcast(void* data, std::size_t bytes, int root, CallSite site) {
  impl_->run(broadcast_call(impl_->session(), data, bytes, root, site));
}

void Communicator::all_gather(const void* input, void* output, std::size_t bytes, CallSite site) {
  impl_->run(all_gather_call(input, output, bytes, site));
}

PendingCollective Communicator::start_barrier(CallSite site) {
  impl_->begin(barrier_call(site));
  return PendingCollective(impl_.get());
}

PendingCollective Communicator::start_all_reduce(void* data, std::size_t count, Dtype dtype, ReduceOp op,
                                                 CallSite site) {
  impl_->begin(all_reduce_call(data, count, dtype, op, site));
  return PendingCollective(impl_.get());
}

PendingCollective Communicator::start_broadcast(void* data, std::size_t bytes, int root, CallSite site) {
  impl_->begin(broadcast_call(impl_->session(), data, bytes, root, site));
  return PendingCollective(impl_.get());
}

PendingCollective Communicator::start_all_gather(const void* input, void* output, std::size_t bytes, CallSite site) {
  impl_->begin(all_gather_call(input, output, bytes, site));
  return PendingCollective(impl_.get());
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
