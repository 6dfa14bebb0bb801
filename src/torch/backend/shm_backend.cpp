#include "torch/backend/shm_backend.h"

#include <utility>

namespace retinue {
namespace {

Communicator make_communicator(const JobGroup& members, const ShmBackend::Waits& waits, const CallSite& site) {
  return Communicator(members, {.timeout = waits.timeout, .waiting = waits.waiting, .late_after = waits.late_after},
                      site);
}

/// Null in a group of one.
std::shared_ptr<OperationQueue> make_queue(const JobGroup& members, const ShmBackend::Waits& waits,
                                           const CallSite& site) {
  if (members.process_slots.size() == 1) return nullptr;
  return std::make_shared<OperationQueue>(make_communicator(members, waits, site));
}

}  // namespace

ShmBackend::ShmBackend(JobGroup members, const Waits& waits, const CallSite& site)
    : TensorBackend("shm", members.rank, static_cast<int>(members.process_slots.size()), waits,
                    make_queue(members, waits, site)),
      members_(std::move(members)) {
  if (getSize() > 1) messages_ = std::make_shared<MessageQueue>(make_communicator(members_, waits, site));
}

ShmBackend::ShmBackend(std::chrono::milliseconds timeout) : TensorBackend("shm", 0, 1, {.timeout = timeout}, nullptr) {}

ShmBackend::~ShmBackend() {
  shutdown();
}

ShmBackend* ShmBackend::of(const c10d::ProcessGroup& group) {
  return dynamic_cast<ShmBackend*>(group.getDefaultBackend().get());
}

std::exception_ptr ShmBackend::first_message_error() const {
  return messages_ ? messages_->first_error() : nullptr;
}

void ShmBackend::close_messages() {
  if (messages_) messages_->close();
  messages_.reset();
}

}  // namespace retinue
