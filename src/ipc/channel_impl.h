#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ipc/job_layout.h"
#include "ipc/message_ring.h"
#include "ipc/parcel.h"
#include "ipc/ring_bell.h"
#include "retinue/base/error.h"
#include "retinue/ipc/message_channel.h"

namespace retinue::detail {

class MessageChannel::Impl {
 public:
  explicit Impl(const SharedBlock& held);

  /// Tries until it is kDone or kClosed, at most `timeout`. `is_more`: whether another waiter would succeed as well.
  template <class Try, class More>
  RingResult wait(RingBell& bell, Time timeout, Try attempt, More is_more);
  bool look_up();
  bool is_time_to_look_up();
  [[noreturn]] static void throw_closed(const char* what);

  SharedBlock block;
  std::shared_ptr<JobMemory> memory;
  MessageRing ring;
  RingPace pace_at(const RingBell& bell);

  std::atomic<std::uint32_t> spin_budget{0};
  std::atomic<std::uint64_t> put_before{0};    ///< Messages, when a put had to wait last.
  std::atomic<std::uint64_t> taken_before{0};  ///< Messages, when a get had to wait last.
  std::atomic<std::uint32_t> sweep_from{0};
  std::atomic<std::uint64_t> last_look_ns{0};
  std::mutex hand_mutex;
  std::deque<TakenMessage> in_hand;  ///< Of a joinable queue, in the order in which they were got.
};

/// A message in a block of its own, until a ring has it.
class Parcel {
 public:
  Parcel(JobMemory& memory, std::span<const std::byte> message, const std::vector<SharedBlock>& references)
      : memory_(&memory),
        handle_(store_parcel(memory, {{reinterpret_cast<const char*>(message.data()), message.size()}}, references)) {}
  ~Parcel() {
    try {
      if (memory_ != nullptr) memory_->release(handle_);
    } catch (const Error&) {
      // Given back with this process's other blocks.
    }
  }
  Parcel(const Parcel&) = delete;
  Parcel& operator=(const Parcel&) = delete;

  const BlockHandle& handle() const { return handle_; }
  void let_go() { memory_ = nullptr; }

 private:
  JobMemory* memory_;
  BlockHandle handle_;
};

}  // namespace retinue::detail
