#include "torch/gloo_messages.h"

#include <c10/util/StringUtil.h>

#include <utility>

#include "retinue/base/error.h"
#include "torch/gloo_backend.h"
#include "torch/gloo_engine.h"

namespace retinue {
namespace {

/// c10d's tags are of 31 bits. Even ones announce a message of a tag of the user's, odd ones are of the data.
constexpr int kMostTag = (1 << 30) - 1;

int tag_of_announcement(int tag) {
  return tag * 2;
}

/// Mixed of both, so that messages of other sizes don't meet; those of one size come in their order.
int tag_of_data(int tag, std::int64_t bytes) {
  std::uint64_t value = static_cast<std::uint64_t>(bytes) * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(tag);
  value = (value ^ value >> 31) * 0xbf58476d1ce4e5b9u;
  return static_cast<int>((value ^ value >> 29) & kMostTag) * 2 + 1;
}

}  // namespace

TensorBuffer GlooMessage::checked_buffer(const TensorP2POp& message, int rank, int size) {
  const bool sends = message.kind == P2POp::Kind::kSend;
  const char* const call = sends ? "send" : "recv";
  const bool is_any = !sends && message.peer == kAnySource;
  if (!is_any && (message.peer < 0 || message.peer >= size || message.peer == rank))
    throw UsageError(c10::str(call, ": rank ", message.peer, " is not another of the group's [0, ", size, ")"));
  if (message.tag < 0 || message.tag > kMostTag)
    throw UsageError(c10::str(call, ": tag ", message.tag, ": between hosts tags are 0 to ", kMostTag,
                              message.tag == kAnyTag ? ", and there is no kAnyTag" : ""));
  return {call, message.tensor, sends ? TensorBuffer::Access::kRead : TensorBuffer::Access::kWrite};
}

GlooMessage::GlooMessage(c10::intrusive_ptr<c10d::Backend> gloo, std::shared_ptr<const GlooPeers> peers,
                         const TensorP2POp& message, TensorBuffer buffer, std::chrono::milliseconds timeout)
    : Work(gloo->getRank(), message.kind == P2POp::Kind::kSend ? c10d::OpType::SEND : c10d::OpType::RECV),
      gloo_(std::move(gloo)),
      peers_(std::move(peers)),
      message_(message),
      timeout_(timeout),
      buffer_(std::move(buffer)),
      bytes_(std::make_shared<std::int64_t>(sends() ? static_cast<std::int64_t>(buffer_.bytes()) : 0)) {
  peers_->checked(name(), [&] {
    announced_ = begin(tensor_of({reinterpret_cast<const std::byte*>(bytes_.get()), sizeof *bytes_}), message_.peer,
                       tag_of_announcement(message_.tag));
    if (message_.peer != kAnySource) data_ = begin_data(message_.peer);
  });
}

GlooMessage::WorkPtr GlooMessage::begin(const at::Tensor& bytes, int peer, int tag) const {
  std::vector<at::Tensor> tensors{bytes};
  if (sends()) return gloo_->send(tensors, peer, tag);
  return peer == kAnySource ? gloo_->recvAnysource(tensors, tag) : gloo_->recv(tensors, peer, tag);
}

GlooMessage::WorkPtr GlooMessage::begin_data(int peer) const {
  if (buffer_.bytes() == 0) return nullptr;
  return begin(tensor_of(buffer_.part()), peer, tag_of_data(message_.tag, static_cast<std::int64_t>(buffer_.bytes())));
}

void GlooMessage::finish(std::chrono::milliseconds timeout) {
  peers_->checked(name(), [&] { announced_->wait(timeout); });
  const auto expected = static_cast<std::int64_t>(buffer_.bytes());
  const int peer = message_.peer == kAnySource ? announced_->sourceRank() : message_.peer;
  if (*bytes_ != expected)
    throw CollectiveMismatch(c10::str("group \"", peers_->group(), "\": recv: rank ", peer, " sent ", *bytes_,
                                      " bytes (tag ", message_.tag, ") for a tensor of ", expected));
  peers_->checked(name(), [&] {
    if (!data_) data_ = begin_data(peer);
    if (data_) data_->wait(timeout);
  });
  if (!sends()) buffer_.unpack(message_.tensor);
}

bool GlooMessage::wait(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(waiting_);
  if (!ended_) {
    try {
      finish(timeout == kNoTimeout ? timeout_ : timeout);
    } catch (...) {
      error_ = std::current_exception();
    }
    ended_ = true;
  }
  if (error_) std::rethrow_exception(error_);
  return true;
}

bool GlooMessage::isCompleted() {
  const std::lock_guard lock(waiting_);
  return ended_;
}

bool GlooMessage::isSuccess() const {
  const std::lock_guard lock(waiting_);
  return ended_ && !error_;
}

int GlooMessage::sourceRank() const {
  const std::lock_guard lock(waiting_);
  return message_.peer == kAnySource ? announced_->sourceRank() : message_.peer;
}

std::vector<GlooBackend::WorkPtr> GlooBackend::start(std::span<const TensorP2POp> messages, const CallMode& mode) {
  check_open();
  std::vector<TensorBuffer> buffers;
  for (const TensorP2POp& message : messages) buffers.push_back(GlooMessage::checked_buffer(message, rank_, size_));
  std::vector<WorkPtr> works;
  for (std::size_t i = 0; i < messages.size(); ++i)
    works.push_back(c10::make_intrusive<GlooMessage>(connection_.gloo, connection_.peers, messages[i],
                                                     std::move(buffers[i]), timeout_of(mode)));
  return works;
}

int GlooBackend::run(const TensorP2POp& message, const CallMode& mode) {
  const WorkPtr work = start({&message, 1}, mode).front();
  work->wait();
  return work->sourceRank();
}

}  // namespace retinue
