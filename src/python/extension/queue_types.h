#pragma once

#include "python/extension/objects.h"

namespace retinue::python {

/// Adds the types Queue and SimpleQueue, of messages, to the module. Errors: ErrorIsSet.
void add_queue_types(PyObject* module);

}  // namespace retinue::python
