#pragma once

#include "python/extension/objects.h"

namespace retinue::python {

/// Adds the types Queue and SimpleQueue, of messages, to the module. Errors: ErrorIsSet.
void add_queue_types(PyObject* module);

/// queue(capacity) for Python: makes a Queue, or for 0 a SimpleQueue.
PyObject* queue(PyObject* module, PyObject* capacity);

/// queue_of(is_simple, bytes) for Python: the queue whose sent() returned these bytes, and blocks that are still held.
PyObject* queue_of(PyObject* module, PyObject* arguments);

}  // namespace retinue::python
