#include "process/clerk.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "os/process_calls.h"
#include "process/symbolizer.h"

namespace retinue {

pid_t start_clerk(const std::vector<CrashRecord*>& records, const std::function<void()>& then) {
  const pid_t guardian = getpid();
  const pid_t pid = fork();
  if (pid != 0) return std::max(pid, 0);
  die_with_parent(guardian);
  prctl(PR_SET_NAME, "retinue-clerk");
  request_default_slice();
  for (CrashRecord* record : records) {
    const std::string text = symbolize(*record);
    const std::size_t bytes = std::min(text.size(), sizeof record->stack - 1);
    std::memcpy(record->stack, text.data(), bytes);
    record->stack[bytes] = '\0';
    record->stack_phase.store(2, std::memory_order_release);
  }
  then();
  _exit(0);
}

}  // namespace retinue
