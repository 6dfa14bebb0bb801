#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "os/process/process_calls.h"
#include "os/sockets/control_socket.h"
#include "process/guardian/guardian.h"
#include "process/guardian/job_sweep.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

using Clock = GuardedContext::Clock;

constexpr auto kAbandonTime = std::chrono::seconds(10);

}  // namespace

/// The program is gone without a word: so is the job. What its ranks wrote is still shown.
void Guardian::abandon_ship() {
  const auto end = Clock::now() + kAbandonTime;
  bool is_hurried = false;
  // It may have forked ranks of which the guardian has not heard yet.
  ControlMessage message{};
  std::vector<FileDescriptor> descriptors;
  while (receive_message(setup_.control_receive.get(), &message, sizeof message, descriptors, nullptr) != 0)
    had_closures_ |= message.kind == ControlKind::kAdopt;
  for (;;) {
    const bool is_late = Clock::now() >= end;
    const Remains remains = kill_ranks_and_orphans();
    if (remains.processes == 0 && !is_hurried) {
      is_hurried = true;
      for (const auto& context : contexts_) context->hurry_logs();
    }
    if (is_late)
      for (const pid_t pid : remains.log_forwarders) kill(pid, SIGKILL);
    if (is_late || (remains.processes == 0 && remains.log_forwarders.empty())) break;
    pollfd entry{child_events_.get(), POLLIN, 0};
    poll(&entry, 1, 20);
    reap();
  }
  report_unretrieved_failures(std::bitset<kMaxProcesses>().set());
  contexts_.clear();                    // The sweep needs their descriptors.
  if (had_closures_) sweep_by_marks();  // Their orphans do not come to the guardian.
  watcher_.end();
  _exit(0);
}

std::vector<pid_t> Guardian::children_or_sweep() const {
  try {
    std::vector<pid_t> children = children_of_self();
    std::erase_if(children, [this](pid_t pid) { return watcher_.owns(pid); });
    return children;
  } catch (const SystemError&) {  // Without descriptors, or on a kernel that does not tell.
    sweep_by_marks();
    return {};
  }
}

/// Whether it could.
bool Guardian::sweep_by_marks() const {
  try {
    sweep_job(*setup_.memory);
    return true;
  } catch (const SystemError& error) {
    std::fprintf(stderr, "retinue: the guardian: %s\n", error.what());
    return false;
  }
}

Guardian::Remains Guardian::kill_ranks_and_orphans() const {
  Remains remains;
  for (const pid_t pid : children_or_sweep()) {
    if (std::any_of(contexts_.begin(), contexts_.end(),
                    [pid](const auto& each) { return each->owns_log_forwarder(pid); })) {
      remains.log_forwarders.push_back(pid);
      continue;
    }
    ++remains.processes;
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
  }
  for (const auto& context : contexts_) remains.processes += context->kill_adopted();
  return remains;
}

}  // namespace retinue
