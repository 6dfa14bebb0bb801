#include "torch/gloo/gloo_messages.h"

#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

#include "retinue/base/error.h"
#include "retinue/collective/divergence.h"
#include "retinue/ipc/detail/blocked_time.h"
#include "torch/backend/shm_work.h"
#include "torch/gloo/gloo_engine.h"

namespace retinue {
namespace {

/// c10d's tags are of 31 bits, of which its own operations use those from 0 on.
constexpr int kMostTag = (1 << 29) - 1;
constexpr int kAnnouncements = 1 << 30;
constexpr int kData = 1 << 29;

int tag_of_announcement(int tag) {
  return kAnnouncements | tag;
}

/// Mixed of all three, so that no other message meets it.
int tag_of_data(int tag, std::int64_t number, std::int64_t bytes) {
  std::uint64_t value = static_cast<std::uint64_t>(tag);
  for (const std::int64_t word : {number, bytes}) {
    value = (value ^ static_cast<std::uint64_t>(word)) * 0x9e3779b97f4a7c15u;
    value ^= value >> 29;
  }
  return kData | static_cast<int>(value & kMostTag);
}

const char* name_of(const TensorP2POp& message) {
  return message.kind == P2POp::Kind::kSend ? "send" : "recv";
}

void check_message(const TensorP2POp& message, int rank, int size) {
  const bool is_any = message.kind == P2POp::Kind::kReceive && message.peer == kAnySource;
  if (!is_any && (message.peer < 0 || message.peer >= size || message.peer == rank))
    throw UsageError(
        c10::str(name_of(message), ": rank ", message.peer, " must be another rank in the group's [0, ", size, ")"));
  if (message.tag < 0 || message.tag > kMostTag)
    throw UsageError(c10::str(name_of(message), ": tag ", message.tag, ": between hosts tags are 0 to ", kMostTag,
                              message.tag == kAnyTag ? "; kAnyTag is not supported" : ""));
}

TensorBuffer buffer_of(const TensorP2POp& message) {
  return {name_of(message), message.tensor,
          message.kind == P2POp::Kind::kSend ? TensorBuffer::Access::kRead : TensorBuffer::Access::kWrite};
}

/// With one other rank any source is that, whose death is noticed then.
TensorP2POp named_source(TensorP2POp message, int rank, int size) {
  if (size == 2 && message.peer == kAnySource) message.peer = 1 - rank;
  return message;
}

}  // namespace

/// Two such receives could take each other's bytes.
void GlooMessages::check_overlap(std::span<const TensorP2POp> messages) const {
  std::map<int, int> any = from_any_;
  std::map<int, int> one = from_one_;
  for (const TensorP2POp& message : messages) {
    if (message.kind == P2POp::Kind::kSend) continue;
    ++(message.peer == kAnySource ? any : one)[message.tag];
    if (any[message.tag] > 0 && one[message.tag] > 0)
      throw UsageError(c10::str("recv: receives from any source and from one rank are in flight with tag ", message.tag,
                                ": between hosts, wait for one before you start the other, or use two tags"));
  }
}

std::int64_t GlooMessages::begin_receive(int peer, int tag) {
  const std::lock_guard lock(mutex_);
  ++(peer == kAnySource ? from_any_ : from_one_)[tag];
  return peer == kAnySource ? 0 : taken_[{peer, tag}]++;
}

void GlooMessages::end_receive(int peer, int tag) {
  const std::lock_guard lock(mutex_);
  --(peer == kAnySource ? from_any_ : from_one_)[tag];
}

void GlooMessages::keep(WorkPtr stale) {
  const std::lock_guard lock(mutex_);
  stale_.push_back(std::move(stale));
}

void GlooMessages::check_owner() const {
  if (getpid() != owner_)
    throw UsageError(
        c10::str("group \"", link_->peers().group(),
                 "\": this process is a fork() of a rank and not a member of the group; make calls in that rank"));
}

void GlooMessages::close() {
  std::vector<WorkPtr> stale;
  const std::lock_guard lock(mutex_);
  stale.swap(stale_);
}

std::vector<GlooMessages::WorkPtr> GlooMessages::start(std::span<const TensorP2POp> messages,
                                                       std::chrono::milliseconds timeout, const CallSite& site,
                                                       std::string_view backend) {
  check_owner();
  std::vector<TensorP2POp> named;
  std::vector<TensorBuffer> buffers;
  for (const TensorP2POp& message : messages) {
    check_message(message, rank_, size_);
    named.push_back(named_source(message, rank_, size_));
    buffers.push_back(buffer_of(message));
  }
  {
    const std::lock_guard lock(mutex_);
    check_overlap(named);
  }
  std::vector<WorkPtr> works;
  for (std::size_t i = 0; i < named.size(); ++i) {
    std::int64_t number = 0;
    if (named[i].kind == P2POp::Kind::kSend) {
      const std::lock_guard lock(mutex_);
      number = sent_[{named[i].peer, named[i].tag}]++;
    } else {
      number = begin_receive(named[i].peer, named[i].tag);
    }
    works.push_back(c10::make_intrusive<GlooMessage>(shared_from_this(), named[i], std::move(buffers[i]), number,
                                                     timeout, site, profiler_title(backend, name_of(named[i]))));
  }
  return works;
}

GlooMessage::GlooMessage(std::shared_ptr<GlooMessages> group, const TensorP2POp& message, TensorBuffer buffer,
                         std::int64_t number, std::chrono::milliseconds timeout, const CallSite& site,
                         const std::string& title)
    : Work(group->rank_, message.kind == P2POp::Kind::kSend ? c10d::OpType::SEND : c10d::OpType::RECV,
           title.empty() ? nullptr : title.c_str(), shown_tensors(title, message.tensor)),
      group_(std::move(group)),
      message_(message),
      timeout_(timeout),
      site_(site),
      buffer_(std::move(buffer)),
      source_(message.peer) {
  if (sends())
    announcement_ = {
        .number = number, .bytes = static_cast<std::int64_t>(buffer_.bytes()), .hash = hash_of(buffer_.part())};
  group_->link_->peers().checked(name(), [&] {
    announced_ = begin(tensor_of({reinterpret_cast<const std::byte*>(&announcement_), sizeof announcement_}),
                       message_.peer, tag_of_announcement(message_.tag));
    if (message_.peer != kAnySource) data_ = begin_data(buffer_, message_.peer, number);
  });
}

std::string GlooMessage::name() const {
  const std::string peer = message_.peer == kAnySource ? std::string("any rank") : c10::str("rank ", message_.peer);
  return c10::str(sends() ? "send to " : "recv from ", peer, " (tag ", message_.tag, ") at ", site_.text());
}

GlooMessage::~GlooMessage() {
  if (!ended_.load(std::memory_order_acquire)) end();
}

GlooMessage::WorkPtr GlooMessage::begin(const at::Tensor& bytes, int peer, int tag) const {
  std::vector<at::Tensor> tensors{bytes};
  return group_->link_->begin([&](c10d::Backend& gloo) {
    if (sends()) return gloo.send(tensors, peer, tag);
    return peer == kAnySource ? gloo.recvAnysource(tensors, tag) : gloo.recv(tensors, peer, tag);
  });
}

GlooMessage::WorkPtr GlooMessage::begin_data(const TensorBuffer& buffer, int peer, std::int64_t number) const {
  if (buffer.bytes() == 0) return nullptr;
  return begin(tensor_of(buffer.part()), peer,
               tag_of_data(message_.tag, number, static_cast<std::int64_t>(buffer.bytes())));
}

void GlooMessage::finish(std::chrono::milliseconds timeout) {
  const GlooPeers& peers = group_->link_->peers();
  peers.checked(name(), [&] { announced_->wait(timeout); });
  const int peer = message_.peer == kAnySource ? announced_->sourceRank() : message_.peer;
  source_.store(peer, std::memory_order_release);
  if (message_.peer == kAnySource) {
    const std::lock_guard lock(group_->mutex_);
    std::int64_t& next = group_->taken_[{peer, message_.tag}];
    next = std::max(next, announcement_.number + 1);
  }
  if (announcement_.bytes != static_cast<std::int64_t>(buffer_.bytes())) {
    peers.checked(name(), [&] { take_other_size(peer, timeout); });
    throw CollectiveMismatch(c10::str("group \"", peers.group(), "\": recv: rank ", peer, " sent ", announcement_.bytes,
                                      " bytes (tag ", message_.tag, ") for a tensor of ", buffer_.bytes()));
  }
  peers.checked(name(), [&] {
    if (!data_) data_ = begin_data(buffer_, peer, announcement_.number);
    if (data_) data_->wait(timeout);
  });
  if (sends()) return;
  if (hash_of(buffer_.part()) != announcement_.hash)
    throw Error(c10::str("group \"", peers.group(), "\": recv: the data from rank ", peer, " with tag ", message_.tag,
                         " belongs to another message, whose tag and size can't be told apart between hosts: use "
                         "different tags for messages that are in flight at once"));
  buffer_.unpack(message_.tensor);
}

/// So that its sender can go on.
void GlooMessage::take_other_size(int peer, std::chrono::milliseconds timeout) {
  if (data_) group_->keep(std::exchange(data_, nullptr));
  const at::Tensor room = at::empty({announcement_.bytes}, at::kByte);
  const TensorBuffer bytes("recv", room, TensorBuffer::Access::kWrite);
  if (const WorkPtr work = begin_data(bytes, peer, announcement_.number)) work->wait(timeout);
}

bool GlooMessage::wait(std::chrono::milliseconds timeout) {
  group_->check_owner();
  const detail::BlockedScope blocked;
  const std::lock_guard lock(waiting_);
  if (!ended_.load(std::memory_order_acquire)) {
    try {
      finish(timeout == kNoTimeout ? timeout_ : timeout);
    } catch (...) {
      error_ = std::current_exception();
      group_->link_->note_message_error(error_);
    }
    end();
  }
  if (error_) std::rethrow_exception(error_);
  return true;
}

void GlooMessage::end() {
  if (!sends()) group_->end_receive(message_.peer, message_.tag);
  announced_.reset();
  data_.reset();
  if (const auto end_of_event = std::exchange(recordFunctionEndCallback_, nullptr)) end_of_event();
  ended_.store(true, std::memory_order_release);
}

bool GlooMessage::isSuccess() const {
  if (!ended_.load(std::memory_order_acquire)) return false;
  return !error_;
}

}  // namespace retinue
