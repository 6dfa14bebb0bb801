#pragma once

#include "python/extension/objects.h"

namespace retinue::python {

/// Adds the type Connection, an end of a pipe of messages, to the module. Errors: ErrorIsSet.
void add_pipe_types(PyObject* module);

/// pipe(duplex) for Python: makes a pipe, and returns its two Connections. Without `duplex` the first only receives.
PyObject* pipe(PyObject* module, PyObject* duplex);

}  // namespace retinue::python
