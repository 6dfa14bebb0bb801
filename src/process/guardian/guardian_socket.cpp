#include <csignal>

#include "ipc/memory/job_clock.h"
#include "os/process/spare_descriptors.h"
#include "process/guardian/guardian.h"

namespace retinue {

void Guardian::serve_job_socket() {
  if (const DescriptorHeadroom headroom(kLookDescriptors); job_socket_.serve(*setup_.memory)) {
    setup_.memory->header().stop_asked.store(SIGTERM, std::memory_order_release);
    for (const auto& context : contexts_) context->stop(SIGTERM);
  }
  keep_clock();
  if (contexts_.empty()) job_socket_.reply_stopped();
}

void Guardian::keep_clock() {
  JobHeader& header = setup_.memory->header();
  const auto now = GuardedContext::Clock::now();
  const bool stands = job_socket_.has_debugger();
  if (stands && !job_clock_stands(header)) stop_job_clock(header);
  if (!stands && job_clock_stands(header)) resume_job_clock(header);
  for (const auto& context : contexts_) {
    if (stands) {
      context->hold_time(now);  // Every time: a ladder may have begun since.
    } else {
      context->release_time(now);
    }
  }
}

}  // namespace retinue
