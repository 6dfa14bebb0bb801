#include "retinue/ipc/queue_base.h"

#include "retinue/base/error.h"
#include "retinue/ipc/detail/message_channel.h"

namespace retinue {

void QueueBase::throw_none() {
  throw UsageError("this Queue is empty: make it with options, or assign one to it");
}

void QueueBase::task_done() {
  channel().task_done();
}
bool QueueBase::join(Time timeout) {
  return channel().join(timeout);
}
void QueueBase::close() {
  channel().close();
}
bool QueueBase::is_closed() const {
  return channel().is_closed();
}
std::size_t QueueBase::size() const {
  return channel().size();
}
bool QueueBase::full() const {
  return channel().is_full();
}
std::size_t QueueBase::capacity() const {
  return channel().capacity();
}
int QueueBase::descriptor() {
  return channel().descriptor();
}
std::uint64_t QueueBase::lost() const {
  return channel().lost();
}
std::vector<LostMessage> QueueBase::lost_messages() const {
  return channel().lost_messages();
}

}  // namespace retinue
