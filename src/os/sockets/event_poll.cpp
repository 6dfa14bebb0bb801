#include "os/sockets/event_poll.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "retinue/base/error.h"

namespace retinue {
namespace {

std::uint32_t events_of(EventPoll::Interest interest) {
  switch (interest) {
    case EventPoll::Interest::kRead:
      return EPOLLIN;
    case EventPoll::Interest::kWrite:
      return EPOLLOUT;
    case EventPoll::Interest::kNothing:
      break;
  }
  return 0;
}

void control(int poll, int operation, int fd, std::uint64_t number, EventPoll::Interest interest) {
  epoll_event event{};
  event.events = events_of(interest);
  event.data.u64 = number;
  if (epoll_ctl(poll, operation, fd, &event) != 0) throw SystemError("epoll_ctl", errno);
}

}  // namespace

EventPoll::EventPoll() : poll_(epoll_create1(EPOLL_CLOEXEC)), bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!poll_ || !bell_) throw SystemError("making an epoll with its bell", errno);
  add(bell_.get(), kWake, Interest::kRead);
}

void EventPoll::add(int fd, std::uint64_t number, Interest interest) {
  control(poll_.get(), EPOLL_CTL_ADD, fd, number, interest);
}

void EventPoll::change(int fd, std::uint64_t number, Interest interest) {
  control(poll_.get(), EPOLL_CTL_MOD, fd, number, interest);
}

void EventPoll::remove(int fd) noexcept {
  epoll_ctl(poll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

const std::vector<std::uint64_t>& EventPoll::wait(Deadline deadline) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(1);
  std::array<epoll_event, 256> events;
  ready_.clear();
  // Rounded up, or the last millisecond of a wait would be spun through.
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left(kLongest));
  const int count = epoll_wait(poll_.get(), events.data(), events.size(), static_cast<int>(left.count()));
  if (count < 0 && errno != EINTR) throw SystemError("epoll_wait", errno);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 != kWake) {
      ready_.push_back(events[i].data.u64);
      continue;
    }
    std::uint64_t rings = 0;
    static_cast<void>(::read(bell_.get(), &rings, sizeof rings) == 0);
  }
  return ready_;
}

void EventPoll::wake() const noexcept {
  const std::uint64_t ring = 1;
  static_cast<void>(::write(bell_.get(), &ring, sizeof ring) == 0);
}

}  // namespace retinue
