#include <csignal>

#include "ipc/job_layout.h"
#include "process/guardian.h"

namespace retinue {

void Guardian::serve_door() {
  if (door_.serve(*setup_.memory)) {
    setup_.memory->header().stop_asked.store(SIGTERM, std::memory_order_release);
    for (const auto& context : contexts_) context->stop(SIGTERM);
  }
  if (contexts_.empty()) door_.tell_stopped();
}

}  // namespace retinue
