#pragma once

// CPython's stable ABI: one extension serves Python 3.10 and all later versions.
#define Py_LIMITED_API 0x030A0000  // NOLINT(bugprone-reserved-identifier,cppcoreguidelines-macro-usage)
#include <Python.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace retinue::python {

/// A reference to a Python object, counted; null is none. Needs the interpreter's lock.
class Reference {
 public:
  Reference() = default;
  /// Takes over a new reference.
  explicit Reference(PyObject* object) : object_(object) {}
  ~Reference() { Py_XDECREF(object_); }
  Reference(Reference&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Reference& operator=(Reference&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  static Reference to(PyObject* object) {
    Py_XINCREF(object);
    return Reference(object);
  }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

/// Thrown where Python's own error is set already.
struct ErrorIsSet : std::exception {};

/// Returns the new reference that a function of Python returned. Errors: ErrorIsSet if it is null.
inline Reference checked(PyObject* object) {
  if (object == nullptr) throw ErrorIsSet();
  return Reference(object);
}

/// Errors: ErrorIsSet if it isn't a str.
std::string text_of(PyObject* object);

/// The bytes of a bytes object, valid as long as it. Errors: ErrorIsSet for another type.
std::string_view bytes_of(PyObject* object);

/// Errors: ErrorIsSet if it isn't an int that fits.
long number_of(PyObject* object);

/// Of seconds; None is for ever. Errors: ErrorIsSet for what is no number; UsageError for NaN.
std::chrono::nanoseconds time_of(PyObject* seconds);

Reference text(std::string_view text);

inline Reference none() {
  return Reference::to(Py_None);
}

inline Reference truth(bool is_true) {
  return Reference::to(is_true ? Py_True : Py_False);
}

/// In a catch block: sets the Python error for what is being handled.
void set_error() noexcept;

/// Runs `function`, which returns a Reference, as the body of a function for Python: what it throws becomes a Python
/// exception, and so does what a handler of a signal raised meanwhile.
template <class Function>
PyObject* answer(const Function& function) noexcept {
  try {
    Reference result = function();
    return PyErr_Occurred() == nullptr ? result.release() : nullptr;
  } catch (...) {
    set_error();
    return nullptr;
  }
}

/// To be called when Python begins to end, without the interpreter's lock: from then on only this thread, the main one,
/// takes it. Blocking: until those that were about to have it do.
void note_end_of_python();

/// Whether Python ends, and this thread may run no Python code any more. CPython before 3.14 would end such a thread by
/// unwinding its stack, which no function of C++ that promises not to throw survives.
bool is_shut_out();

/// How many threads are about to have the interpreter's lock, having asked whether they are shut out.
inline std::atomic<int> entering = 0;

/// Calls `take`, which waits for the interpreter's lock. A thread that is shut out sleeps for ever.
template <class Take>
void enter_python(const Take& take) {
  const auto leave = [] {
    --entering;
    entering.notify_all();
  };
  ++entering;
  if (is_shut_out()) {
    leave();
    for (;;) pause();
  }
  take();
  leave();
}

/// Lets other threads run Python code as long as it exists. At its end, a thread that is shut out sleeps for ever.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    enter_python([this] { PyEval_RestoreThread(state_); });
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

/// Returns what `attempt(timeout)` does, while others run Python code if it must wait: it is tried without a wait
/// first. `attempt` returns something false if `timeout` was over. A handler of a signal ends a wait by its exception.
template <class Attempt>
auto wait_without_gil(std::chrono::nanoseconds timeout, const Attempt& attempt) {
  if (auto result = attempt(std::chrono::nanoseconds(0)); result || timeout <= std::chrono::nanoseconds(0))
    return result;
  const WithoutGil without_gil;
  return attempt(timeout);
}

}  // namespace retinue::python
