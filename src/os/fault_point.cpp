#include "os/fault_point.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "retinue/base/error.h"

namespace retinue {

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
  const char* wanted = std::getenv("RETINUE_FAULT");
  if (wanted == nullptr) return;
  const std::size_t length = std::strlen(place);
  if (std::strncmp(wanted, place, length) != 0) return;
  const char* rest = wanted + length;
  if (*rest == ':') {
    char* end = nullptr;
    if (std::strtol(rest + 1, &end, 10) != rank) return;
    rest = end;
  }
  if (*rest != '=') return;
  end_by_fault(rest + 1);
  if (std::strcmp(rest + 1, "throw") == 0) throw Error(std::string("RETINUE_FAULT at ") + place);
}

}  // namespace retinue
