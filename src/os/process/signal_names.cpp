#include "os/process/signal_names.h"

#include <fmt/format.h>

#include <cctype>
#include <csignal>
#include <cstring>

namespace retinue {

std::string signal_name(int signal) {
  if (const char* name = sigabbrev_np(signal)) return fmt::format("SIG{}", name);
  if (signal == SIGRTMIN) return "SIGRTMIN";
  if (signal > SIGRTMIN && signal <= SIGRTMAX) return fmt::format("SIGRTMIN+{}", signal - SIGRTMIN);
  return fmt::format("signal {}", signal);
}

std::string signal_description(int signal) {
  const char* text = sigdescr_np(signal);
  if (text == nullptr) return "a signal without a description";
  std::string description(text);
  // "I/O possible" keeps its capital.
  if (description.size() > 1 && std::islower(static_cast<unsigned char>(description[1]))) {
    description[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(description[0])));
  }
  return description;
}

std::string fault_description(int signal, std::uint64_t address) {
  const bool has_address = signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL;
  if (!has_address) return signal_description(signal);
  return fmt::format("{} at address {:#x}", signal_description(signal), address);
}

}  // namespace retinue
