#include "python/extension/rank_entry.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "python/extension/message.h"
#include "retinue/base/detail/foreign_error.h"
#include "retinue/base/error.h"
#include "retinue/launch/runtime.h"

namespace retinue::python {
namespace {

/// Held for as long as the process, and so by its forks.
Reference& runner() {
  static auto* const held = new Reference;
  return *held;
}

/// Whether this process is a guardian, which forks ranks: Python, which forks by itself, is told of these forks.
bool forks_ranks = false;

void before_fork() {
  if (forks_ranks) PyOS_BeforeFork();
}
void after_fork_in_guardian() {
  if (forks_ranks) PyOS_AfterFork_Parent();
}
void after_fork_in_rank() {
  if (forks_ranks) PyOS_AfterFork_Child();
  forks_ranks = false;
}

/// Errors: ErrorIsSet if the tuple has no such text.
std::string text_at(PyObject* tuple, Py_ssize_t index) {
  PyObject* const item = PyTuple_GetItem(tuple, index);
  if (item == nullptr) throw ErrorIsSet();
  return text_of(item);
}

detail::ForeignError failure_of(PyObject* described) {
  return {text_at(described, 0), text_at(described, 1), text_at(described, 2)};
}

/// As sys.exit(code) does, without the exit handlers of the guardian.
[[noreturn]] void leave(int code) {
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace

void set_runner(Reference new_runner) {
  runner() = std::move(new_runner);
}

void run_in_python(RankContext& context, std::string_view pickle, const std::vector<SharedBlock>& blocks) {
  forks_ranks = false;  // In a rank that was executed: it was not known yet what the process would be.
  try {
    if (!runner()) throw UsageError("this process has no runner for ranks of Python programs");
    const Reference bytes = checked(PyBytes_FromStringAndSize(pickle.data(), static_cast<Py_ssize_t>(pickle.size())));
    const Reference list = list_of(blocks);
    const Reference end = checked(PyObject_CallFunction(runner().get(), "iiOO", context.rank(), context.cpus_per_rank(),
                                                        bytes.get(), list.get()));
    if (PyLong_Check(end.get()) != 0) leave(static_cast<int>(PyLong_AsLong(end.get())));
    if (end.get() != Py_None) throw failure_of(end.get());
  } catch (const ErrorIsSet&) {
    PyErr_Print();
    throw Error("the runner of Python ranks raised an exception, which standard error shows");
  }
}

void serve(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pthread_atfork(&before_fork, &after_fork_in_guardian, &after_fork_in_rank);
  forks_ranks = true;
  const Runtime runtime(static_cast<int>(arguments.size()), argv.data());
  throw UsageError("nothing is to be served: this module is for processes that Retinue starts");
}

}  // namespace retinue::python
