#include "os/testing/fault_point.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "retinue/base/error.h"

namespace retinue {
namespace {

/// What the variable says is to happen at this place; null if nothing.
const char* action_at(const char* place, int rank) {
  const char* wanted = std::getenv("RETINUE_FAULT");
  if (wanted == nullptr) return nullptr;
  const std::size_t length = std::strlen(place);
  if (std::strncmp(wanted, place, length) != 0) return nullptr;
  const char* rest = wanted + length;
  if (*rest == ':') {
    char* end = nullptr;
    if (std::strtol(rest + 1, &end, 10) != rank) return nullptr;
    rest = end;
  }
  return *rest == '=' ? rest + 1 : nullptr;
}

}  // namespace

void end_by_fault(const char* action) noexcept {
  if (std::strcmp(action, "kill") == 0) kill(getpid(), SIGKILL);
  if (std::strcmp(action, "exit") == 0) _exit(0);
  if (std::strcmp(action, "segv") != 0) return;
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGSEGV);
  sigprocmask(SIG_UNBLOCK, &blocked, nullptr);
  kill(getpid(), SIGSEGV);
}

void fault_point(const char* place, int rank) {
  const char* action = action_at(place, rank);
  if (action == nullptr) return;
  end_by_fault(action);
  if (std::strcmp(action, "stop") == 0) kill(getpid(), SIGSTOP);
  if (std::strcmp(action, "throw") == 0) throw Error(std::string("RETINUE_FAULT at ") + place);
}

bool fault_skips(const char* place, int rank) noexcept {
  const char* action = action_at(place, rank);
  return action != nullptr && std::strcmp(action, "skip") == 0;
}

}  // namespace retinue
