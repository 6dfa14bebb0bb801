// The extension module retinue._core: the core for Python programs, without PyTorch.
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "os/files/file_descriptor.h"
#include "os/process/process_calls.h"
#include "python/extension/message.h"
#include "python/extension/objects.h"
#include "python/extension/pipe_types.h"
#include "python/extension/process_types.h"
#include "python/extension/queue_types.h"
#include "python/extension/rank_entry.h"
#include "python/extension/sync_types.h"
#include "retinue/base/error.h"
#include "retinue/launch/runtime.h"
#include "retinue/os/detail/interrupt.h"

namespace retinue::python {
namespace {

/// The Runtime that this program made. A rank has its guardian's.
std::unique_ptr<Runtime>& runtime() {
  static auto* const made = new std::unique_ptr<Runtime>;
  return *made;
}

/// Runs Python's handlers of signals, on the main thread. Their exception stays set for the call that waits.
bool is_interrupted_by_handler() {
  if (gettid() != getpid() || is_shut_out() || PyGILState_GetThisThreadState() == nullptr) return false;
  const PyGILState_STATE state = PyGILState_Ensure();
  // A wait for a lock, after one that was interrupted: a second exception takes the place of the first.
  PyObject* error[3] = {nullptr, nullptr, nullptr};
  PyErr_Fetch(&error[0], &error[1], &error[2]);
  const bool is_interrupted = PyErr_CheckSignals() != 0;
  if (is_interrupted) {
    for (PyObject* const part : error) Py_XDECREF(part);
  } else {
    PyErr_Restore(error[0], error[1], error[2]);
  }
  PyGILState_Release(state);
  return is_interrupted;
}

std::vector<std::string> texts_of(PyObject* list) {
  std::vector<std::string> texts;
  const Py_ssize_t size = PyList_Size(list);
  if (size < 0) throw ErrorIsSet();
  for (Py_ssize_t i = 0; i < size; ++i) texts.push_back(text_of(PyList_GetItem(list, i)));
  return texts;
}

PyObject* start_job(PyObject*, PyObject* arguments) {
  return answer([&] {
    PyObject* program = nullptr;
    PyObject* command = nullptr;
    if (PyArg_ParseTuple(arguments, "UO", &program, &command) == 0) throw ErrorIsSet();
    std::string name = text_of(program);
    RuntimeOptions options;
    options.command = texts_of(command);
    if (Runtime::current_or_null() == nullptr) {
      char* argv[] = {name.data(), nullptr};
      const WithoutGil without_gil;
      runtime() = std::make_unique<Runtime>(1, argv, options);
    }
    return none();
  });
}

/// Ends the job as where an exception leaves main: its ranks are stopped at once.
void stop_at_once() {
  class Job {
   public:
    ~Job() { runtime().reset(); }
  };
  try {
    const Job job;
    throw Error("interrupted");
  } catch (const Error&) {
    return;
  }
}

PyObject* stop_job(PyObject*, PyObject* at_once) {
  return answer([&] {
    const int is_urgent = PyObject_IsTrue(at_once);
    if (is_urgent < 0) throw ErrorIsSet();
    {
      const WithoutGil without_gil;
      note_end_of_python();
      if (is_urgent != 0) stop_at_once();
      runtime().reset();
    }
    return none();
  });
}

PyObject* take_runner(PyObject*, PyObject* runner) {
  return answer([&] {
    set_runner(Reference::to(runner));
    return none();
  });
}

PyObject* serve_job(PyObject*, PyObject* arguments) {
  return answer([&]() -> Reference { serve(texts_of(arguments)); });
}

PyObject* environment(PyObject*, PyObject*) {
  return answer([&] {
    Reference list = checked(PyList_New(0));
    for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
      const Reference bytes = checked(PyBytes_FromString(*variable));
      if (PyList_Append(list.get(), bytes.get()) != 0) throw ErrorIsSet();
    }
    return list;
  });
}

PyObject* pidfd_open(PyObject*, PyObject* pid) {
  return answer([&] {
    FileDescriptor pidfd = open_pidfd(static_cast<pid_t>(number_of(pid)));
    return checked(PyLong_FromLong(pidfd.release()));
  });
}

PyMethodDef functions[] = {
    {"pidfd_open", &pidfd_open, METH_O, "os.pidfd_open(pid), which Pythons that were built with old headers lack."},
    {"environment", &environment, METH_NOARGS,
     "The environment, as bytes: os.environ is what it was at Python's start."},
    {"start", &start_job, METH_VARARGS,
     "start(program, command): makes the job of this process, named after that program; the command executes "
     "its guardian."},
    {"stop", &stop_job, METH_O, "stop(at_once): ends the job; its ranks end by themselves, or are stopped at once."},
    {"set_runner", &take_runner, METH_O,
     "set_runner(function): what runs a rank: function(rank, cpus, pickle, blocks)."},
    {"serve", &serve_job, METH_O, "serve(arguments): becomes the guardian or a rank, and does not return."},
    {"spawn", &spawn, METH_VARARGS, "spawn(payloads, nprocs, executed, daemon): starts ranks."},
    {"start_process", &start_process, METH_VARARGS,
     "start_process(payload, name, executed, daemon): starts a process."},
    {"pipe", &pipe, METH_O, "pipe(duplex): makes the two Connections of a pipe."},
    {"allocate", &allocate, METH_O, "allocate(bytes): makes a Block of job memory."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "retinue._core", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace retinue::python

PyMODINIT_FUNC PyInit__core() {  // NOLINT(readability-identifier-naming): CPython looks for that name.
  using namespace retinue::python;
  return answer([] {
    Reference module = checked(PyModule_Create(&module_definition));
    add_block_type(module.get());
    add_queue_types(module.get());
    add_sync_types(module.get());
    add_pipe_types(module.get());
    add_process_types(module.get());
    retinue::detail::interrupt_check.store(&is_interrupted_by_handler, std::memory_order_release);
    return module;
  });
}
