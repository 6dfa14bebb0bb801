#pragma once

#include <string>
#include <vector>

#include "machine.h"

namespace retinue {

enum class Verdict {
  kOk,
  kLimit,    ///< Jobs run, but something bounds them or is missing.
  kProblem,  ///< Jobs will fail.
};

/// One thing that was looked at.
struct Check {
  Verdict verdict = Verdict::kOk;
  std::string name;
  std::string found;
  std::string advice;  ///< What to do; empty where all is well.
};

/// What limits a job on that machine, and what to do about each.
std::vector<Check> check_machine(const Machine& machine);

/// A row per check.
std::string doctor_text(const std::vector<Check>& checks);

/// `retinue doctor`: looks at this machine. Returns the exit code: 1 if jobs will fail.
int doctor_command();

}  // namespace retinue
