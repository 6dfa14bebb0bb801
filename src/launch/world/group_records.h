#pragma once

#include <cstdint>

#include "ipc/memory/job_layout.h"

/// What processes tell each other while they become a group, in this order. Programs of another version read no more
/// than the Greeting.
namespace retinue {

struct Greeting {
  std::uint32_t protocol = 2;  ///< Of what follows.
  std::uint32_t layout_version = kJobLayoutVersion;
  std::uint64_t memories = 0;  ///< Number of KnownMemory that this process has to tell of.
};

struct Introduction {
  char boot_id[64] = {};     ///< Of the host's kernel; empty where it isn't told.
  char name[96] = {};        ///< GroupExchange::name.
  std::uint64_t number = 0;  ///< Of the groups that this process was in; rank 0's makes the name unique.
};

/// Memory in which a process has a slot.
struct KnownMemory {
  std::uint64_t job_id = 0;
  std::uint32_t slot = 0;
  std::uint32_t unused = 0;
};

/// Whether a step went well on a rank.
struct StepResult {
  enum Kind : std::uint32_t { kDone = 0, kUsageError = 1, kOtherError = 2, kNotOneHost = 3 };

  std::uint32_t kind = kDone;
  char text[508] = {};
};

/// Where rank 0's memory can be opened.
struct MemoryOffer {
  StepResult result;
  std::uint64_t job_id = 0;
  std::int32_t pid = 0;
  std::int32_t memfd = -1;
};

/// The others' slots, one behind the other.
struct SlotOffer {
  StepResult result;
  std::uint32_t first_slot = 0;
};

}  // namespace retinue
