#pragma once

namespace retinue {

/// Ends the calling process here if the environment variable RETINUE_FAULT names this place, so that tests can let each
/// process die at each step: "PLACE=ACTION", or "PLACE:RANK=ACTION" where the place knows its rank; ACTION is kill
/// (SIGKILL), segv (SIGSEGV), exit (_exit(0)) or throw (an Error that names the place); or stop (SIGSTOP), which it
/// doesn't die of.
///
/// Cost: a look into the environment; for steps, not for loops.
void fault_point(const char* place, int rank = -1);

/// Whether the variable says "PLACE=skip" or "PLACE:RANK=skip": the step at this place is not to be done, so that tests
/// meet what cannot be made at will.
bool fault_skips(const char* place, int rank = -1) noexcept;

/// What the ACTIONs do that end the process. Errors: none; returns only where `action` is none of them.
void end_by_fault(const char* action) noexcept;

}  // namespace retinue
