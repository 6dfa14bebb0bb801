#pragma once

#include "collective/line.h"
#include "retinue/collective/communicator.h"

namespace retinue {

/// One collective as its caller asked for it.
struct Call {
  CallShape shape;
  const void* input = nullptr;  ///< What this member contributes; null if nothing.
  void* output = nullptr;       ///< Where the result goes; `input` itself for all_reduce.
  CallSite site;
};

}  // namespace retinue
