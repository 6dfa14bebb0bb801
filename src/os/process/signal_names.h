#pragma once

#include <cstdint>
#include <string>

namespace retinue {

/// "SIGSEGV"; "SIGRTMIN+3"; "signal 99" for what is no signal.
std::string signal_name(int signal);

/// What a signal means: "segmentation fault".
std::string signal_description(int signal);

/// "segmentation fault at address 0x0" for the signals that carry an address, otherwise the description.
std::string fault_description(int signal, std::uint64_t address);

}  // namespace retinue
