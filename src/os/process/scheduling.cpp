#include "os/process/scheduling.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "retinue/base/error.h"

namespace retinue {
namespace {

struct SchedulingAttributes {  // struct sched_attr of the kernel; glibc 2.36 does not declare it.
  std::uint32_t size;
  std::uint32_t policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime;
  std::uint64_t deadline;
  std::uint64_t period;
};

constexpr std::uint32_t kDeadlinePolicy = 6;  // SCHED_DEADLINE
constexpr std::uint64_t kResetOnFork = 1;     // SCHED_FLAG_RESET_ON_FORK

SchedulingAttributes attributes_of_this_thread() {
  SchedulingAttributes attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) attributes = {};
  attributes.size = sizeof attributes;
  return attributes;
}

void request_slice(std::uint64_t nanoseconds) {
  SchedulingAttributes attributes = attributes_of_this_thread();
  if (attributes.policy != SCHED_OTHER) return;
  attributes.runtime = nanoseconds;
  // Kernels before 6.12 ignore the slice of a normal task: nothing to do about it.
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace

Scheduling Scheduling::of_this_thread() {
  const SchedulingAttributes now = attributes_of_this_thread();
  Scheduling inherited{now.policy, now.nice, now.priority};
  const bool is_real_time = now.policy == SCHED_FIFO || now.policy == SCHED_RR;
  const bool resets = (now.flags & kResetOnFork) != 0;
  if (now.policy == kDeadlinePolicy || (is_real_time && resets)) return {};
  if (resets) inherited.nice = std::max(inherited.nice, 0);
  return inherited;
}

void Scheduling::take() const {
  SchedulingAttributes attributes{};
  attributes.size = sizeof attributes;
  attributes.policy = policy;
  attributes.nice = nice;
  attributes.priority = priority;
  if (syscall(SYS_sched_setattr, 0, &attributes, 0) != 0)
    throw SystemError("taking over the caller's scheduling policy and nice value", errno);
}

void request_short_slice() {
  request_slice(100'000);
}
void request_default_slice() {
  request_slice(0);
}

}  // namespace retinue
