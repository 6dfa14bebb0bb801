#include "retinue/torch/messages.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

#include "retinue/base/error.h"
#include "retinue/torch/objects.h"
#include "torch/backend/shm_backend.h"
#include "torch/groups/make_group.h"

namespace retinue {
namespace {

using Kind = P2POp::Kind;

const char* name_of(Kind kind) {
  return kind == Kind::kSend ? "send" : "recv";
}

/// The memory of a message, for as long as it is under way.
c10::intrusive_ptr<MessageWork> make_work(const TensorP2POp& message, int rank, const std::string& backend) {
  const bool sends = message.kind == Kind::kSend;
  if (message.tag < (sends ? 0 : kAnyTag))
    throw UsageError(c10::str(name_of(message.kind), ": tag ", message.tag, " is negative"));
  TensorBuffer buffer(name_of(message.kind), message.tensor,
                      sends ? TensorBuffer::Access::kRead : TensorBuffer::Access::kWrite);
  const P2POp bytes = sends ? P2POp::isend(buffer.part(), message.peer, message.tag)
                            : P2POp::irecv(buffer.part(), message.peer, message.tag);
  auto after = [buffer = std::move(buffer), tensor = message.tensor, sends](const Received& received) {
    if (sends) return;
    if (received.bytes != buffer.bytes())
      throw CollectiveMismatch(c10::str("recv: rank ", received.source, " sent ", received.bytes, " bytes (tag ",
                                        received.tag, ") for a tensor of ", buffer.bytes()));
    buffer.unpack(tensor);
  };
  return c10::make_intrusive<MessageWork>(rank, bytes, std::vector<at::Tensor>{message.tensor}, std::move(after),
                                          profiler_title(backend, name_of(message.kind)));
}

TensorBackend* ours_of(const char* call, const ProcessGroup& group, const at::Tensor& tensor) {
  return TensorBackend::of(checked_group(call, group), tensor);
}

/// By what c10d offers for all backends.
Work start_elsewhere(const TensorP2POp& message, c10d::ProcessGroup& group) {
  std::vector<at::Tensor> tensors{message.tensor};
  if (message.kind == Kind::kSend) return group.send(tensors, message.peer, message.tag);
  if (message.peer == kAnySource) return group.recvAnysource(tensors, message.tag);
  return group.recv(tensors, message.peer, message.tag);
}

/// Of all of a batch.
c10::DeviceType device_of(const std::vector<TensorP2POp>& messages) {
  const auto device_at = [](const TensorP2POp& message) {
    if (!message.tensor.defined()) throw UsageError("batch_isend_irecv: a tensor is undefined");
    return message.tensor.device().type();
  };
  const c10::DeviceType device = device_at(messages.front());
  for (const TensorP2POp& message : messages)
    if (device_at(message) != device)
      throw UsageError("batch_isend_irecv: the batch has CPU and GPU tensors; use one batch for each");
  return device;
}

/// NCCL makes messages one after the other, so that those of two ranks to each other would never end; but those of a
/// batch at once.
std::vector<Work> start_coalesced(const std::vector<TensorP2POp>& messages, const ProcessGroup& group,
                                  c10::DeviceType device) {
  for (const TensorP2POp& message : messages) detail::check_rank("batch_isend_irecv", group, message.peer);
  std::vector<Work> works;
  group->startCoalescing(device);
  try {
    for (const TensorP2POp& message : messages) works.push_back(start_elsewhere(message, *group));
  } catch (...) {
    // Else all that this thread gives NCCL from now on would wait for the batch's end.
    try {
      group->endCoalescing(device);
    } catch (const c10::Error&) {
    }
    throw;
  }
  if (const Work all = group->endCoalescing(device)) std::fill(works.begin(), works.end(), all);
  return works;
}

Work start_one(const char* call, const TensorP2POp& message, const ProcessGroup& group,
               const std::source_location& where) {
  if (TensorBackend* ours = ours_of(call, group, message.tensor))
    return ours->start({&message, 1}, {.async_op = true, .site = where}).front();
  return start_elsewhere(message, *group);
}

int run_one(const char* call, const TensorP2POp& message, const ProcessGroup& group,
            const std::source_location& where) {
  if (TensorBackend* ours = ours_of(call, group, message.tensor)) return ours->run(message, {.site = where});
  const Work work = start_elsewhere(message, *group);
  if (work) work->wait();
  return work && message.peer == kAnySource ? work->sourceRank() : message.peer;
}

}  // namespace

std::vector<ShmBackend::WorkPtr> ShmBackend::start(std::span<const TensorP2POp> messages, const CallMode& mode) {
  check_open();
  if (messages.empty()) return {};
  if (!messages_) throw UsageError(c10::str(name_of(messages[0].kind), ": in a group of one there is nobody else"));
  std::vector<MessageQueue::WorkPtr> works;
  for (const TensorP2POp& message : messages) works.push_back(make_work(message, rank_, getBackendName()));
  messages_->start(works, timeout_of(mode), mode.site);
  return {works.begin(), works.end()};
}

int ShmBackend::run(const TensorP2POp& message, const CallMode& mode) {
  check_open();
  if (!messages_) throw UsageError(c10::str(name_of(message.kind), ": in a group of one there is nobody else"));
  const MessageQueue::WorkPtr work = make_work(message, rank_, getBackendName());
  messages_->run(work, timeout_of(mode), mode.site);
  return work->sourceRank();
}

void send(const at::Tensor& tensor, const ProcessGroup& group, int dst, int tag, std::source_location where) {
  run_one("send", TensorP2POp::isend(tensor, dst, tag), group, where);
}

int recv(const at::Tensor& tensor, const ProcessGroup& group, int src, int tag, std::source_location where) {
  return run_one("recv", TensorP2POp::irecv(tensor, src, tag), group, where);
}

Work isend(const at::Tensor& tensor, const ProcessGroup& group, int dst, int tag, std::source_location where) {
  return start_one("isend", TensorP2POp::isend(tensor, dst, tag), group, where);
}

Work irecv(const at::Tensor& tensor, const ProcessGroup& group, int src, int tag, std::source_location where) {
  return start_one("irecv", TensorP2POp::irecv(tensor, src, tag), group, where);
}

std::vector<Work> batch_isend_irecv(const std::vector<TensorP2POp>& messages, const ProcessGroup& group,
                                    std::source_location where) {
  c10d::ProcessGroup& ranks = checked_group("batch_isend_irecv", group);
  if (messages.empty()) return {};
  const c10::DeviceType device = device_of(messages);
  if (TensorBackend* ours = TensorBackend::of(ranks, messages.front().tensor))
    return ours->start(messages, {.async_op = true, .site = where});
  if (ranks.getBackend(device)->supportsCoalescing()) return start_coalesced(messages, group, device);
  std::vector<Work> works;
  for (const TensorP2POp& message : messages) works.push_back(start_elsewhere(message, ranks));
  return works;
}

}  // namespace retinue
