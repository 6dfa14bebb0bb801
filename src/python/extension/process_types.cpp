#include "python/extension/process_types.h"

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/extension/boxed.h"
#include "python/extension/message.h"
#include "python/extension/rank_entry.h"
#include "retinue/launch/process.h"
#include "retinue/launch/spawn.h"

namespace retinue::python {
namespace {

using PythonProcess = Process<run_in_python>;
using Payload = std::tuple<std::string_view, std::vector<SharedBlock>>;

PyObject* join_context(PyObject* self, PyObject* timeout) {
  return answer([&] {
    const std::chrono::nanoseconds time = time_of(timeout);
    bool has_ended = false;
    std::string failure;
    {
      const WithoutGil without_gil;
      try {
        has_ended = value_of<ProcessContext>(self).join(time);
      } catch (const ProcessException& error) {
        failure = to_json(error);
      }
    }
    return failure.empty() ? truth(has_ended) : text(failure);
  });
}

PyObject* pids_of_context(PyObject* self, PyObject*) {
  return answer([&] {
    std::vector<int> pids;
    {
      const WithoutGil without_gil;
      pids = value_of<ProcessContext>(self).pids();  // Waits for the forks.
    }
    Reference list = checked(PyList_New(0));
    for (const int pid : pids) {
      const Reference number = checked(PyLong_FromLong(pid));
      if (PyList_Append(list.get(), number.get()) != 0) throw ErrorIsSet();
    }
    return list;
  });
}

template <class Value>
PyObject* terminate(PyObject* self, PyObject*) {
  return answer([&] {
    value_of<Value>(self).terminate();
    return none();
  });
}

template <class Value>
PyObject* kill(PyObject* self, PyObject*) {
  return answer([&] {
    value_of<Value>(self).kill();
    return none();
  });
}

PyObject* signal_context(PyObject* self, PyObject* number) {
  return answer([&] {
    value_of<ProcessContext>(self).signal(static_cast<int>(number_of(number)));
    return none();
  });
}

PyObject* join_process(PyObject* self, PyObject* timeout) {
  return answer([&] {
    const std::chrono::nanoseconds time = time_of(timeout);
    bool has_ended = false;
    {
      const WithoutGil without_gil;
      has_ended = value_of<PythonProcess>(self).join(time);
    }
    return truth(has_ended);
  });
}

/// Of (bytes, list of Blocks), as long as that lives. Errors: ErrorIsSet for something else.
Payload payload_of(PyObject* tuple) {
  PyObject* pickle = nullptr;
  PyObject* blocks = nullptr;
  if (PyArg_ParseTuple(tuple, "OO", &pickle, &blocks) == 0) throw ErrorIsSet();
  return {bytes_of(pickle), blocks_of(blocks)};
}

Reference number_or_none(std::optional<int> number) {
  return number ? checked(PyLong_FromLong(*number)) : none();
}

PyObject* exitcode_of_process(PyObject* self, PyObject*) {
  return answer([&] { return number_or_none(value_of<PythonProcess>(self).exitcode()); });
}

PyObject* pid_of_process(PyObject* self, PyObject*) {
  return answer([&] {
    std::optional<int> pid;
    {
      const WithoutGil without_gil;
      pid = value_of<PythonProcess>(self).pid();  // Waits for the fork.
    }
    return number_or_none(pid);
  });
}

PyObject* sentinel_of_process(PyObject* self, PyObject*) {
  return answer([&] { return number_or_none(value_of<PythonProcess>(self).sentinel()); });
}

PyObject* close_process(PyObject* self, PyObject*) {
  return answer([&] {
    value_of<PythonProcess>(self).close();
    return none();
  });
}

/// Python's table of a type or module; each entry's name and documentation are literals.
PyMethodDef context_methods[] = {
    {"join", &join_context, METH_O,
     "join(seconds or None): True when all ranks have ended well, False if some still run, or how they failed, as "
     "JSON."},
    {"pids", &pids_of_context, METH_NOARGS, "The process ids, by rank."},
    {"terminate", &terminate<ProcessContext>, METH_NOARGS, "Begins to end all ranks: SIGTERM, later SIGKILL."},
    {"kill", &kill<ProcessContext>, METH_NOARGS, "Ends all ranks by SIGKILL."},
    {"signal", &signal_context, METH_O, "signal(number): sends a signal to all ranks that still run."},
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef process_methods[] = {
    {"join", &join_process, METH_O, "join(seconds or None): whether the process has ended."},
    {"exitcode", &exitcode_of_process, METH_NOARGS, "As multiprocessing.Process.exitcode."},
    {"pid", &pid_of_process, METH_NOARGS, "The process id."},
    {"sentinel", &sentinel_of_process, METH_NOARGS, "A descriptor that is readable when the process has ended."},
    {"terminate", &terminate<PythonProcess>, METH_NOARGS, "Begins to end the process: SIGTERM, later SIGKILL."},
    {"kill", &kill<PythonProcess>, METH_NOARGS, "Ends the process by SIGKILL."},
    {"close", &close_process, METH_NOARGS, "Releases what a process that has ended holds."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyObject* spawn(PyObject*, PyObject* arguments) {
  return answer([&] {
    PyObject* payloads = nullptr;
    int nprocs = 0;
    int executed = 0;
    int daemon = 0;
    if (PyArg_ParseTuple(arguments, "Oipp", &payloads, &nprocs, &executed, &daemon) == 0) throw ErrorIsSet();
    StartOptions options;
    if (executed != 0) options.start_method = StartMethod::kSpawn;
    options.daemon = daemon != 0;
    std::map<int, Payload> by_rank;
    for (int rank = 0; rank < nprocs; ++rank) {
      PyObject* const payload = PyList_GetItem(payloads, PyList_Size(payloads) == 1 ? 0 : rank);
      if (payload == nullptr) throw ErrorIsSet();
      by_rank.emplace(rank, payload_of(payload));
    }
    std::optional<ProcessContext> context;
    {
      const WithoutGil without_gil;
      context = start_processes<run_in_python>(options, by_rank);
    }
    return boxed(*std::move(context));
  });
}

PyObject* start_process(PyObject*, PyObject* arguments) {
  return answer([&] {
    PyObject* payload = nullptr;
    const char* name = nullptr;
    int executed = 0;
    int daemon = 0;
    if (PyArg_ParseTuple(arguments, "Ospp", &payload, &name, &executed, &daemon) == 0) throw ErrorIsSet();
    ProcessOptions options;
    options.name = name;
    options.daemon = daemon != 0;
    if (executed != 0) options.start_method = StartMethod::kSpawn;
    const auto [pickle, blocks] = payload_of(payload);
    std::optional<PythonProcess> process;
    {
      const WithoutGil without_gil;
      process.emplace(options, pickle, blocks);
      process->start();
    }
    return boxed(*std::move(process));
  });
}

void add_process_types(PyObject* module) {
  add_type<ProcessContext>(module, "retinue._core.ProcessContext", context_methods);
  add_type<PythonProcess>(module, "retinue._core.Process", process_methods);
}

}  // namespace retinue::python
