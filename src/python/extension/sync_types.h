#pragma once

#include "python/extension/objects.h"

namespace retinue::python {

/// Adds the types Lock, RLock, Semaphore, BoundedSemaphore, Event, Condition and Barrier, in job memory, to the module.
/// Errors: ErrorIsSet.
void add_sync_types(PyObject* module);

}  // namespace retinue::python
