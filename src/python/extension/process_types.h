#pragma once

#include "python/extension/objects.h"

namespace retinue::python {

/// Adds the types ProcessContext and Process, of processes that run Python, to the module. Errors: ErrorIsSet.
void add_process_types(PyObject* module);

/// spawn(payloads, nprocs, executed, daemon) for Python: starts ranks that give their payload, a tuple of a pickle and
/// a list of Blocks, to the runner, each its own or all the only one, and returns their ProcessContext at once.
/// `executed`: by an interpreter of their own, instead of as forks of the guardian.
PyObject* spawn(PyObject* module, PyObject* arguments);

/// start_process(payload, name, executed, daemon) for Python: starts one such process, and returns its Process.
PyObject* start_process(PyObject* module, PyObject* arguments);

}  // namespace retinue::python
