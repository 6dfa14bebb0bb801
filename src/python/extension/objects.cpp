#include "python/extension/objects.h"

#include <sys/types.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <new>
#include <string_view>

#include "retinue/base/error.h"

namespace retinue::python {
namespace {

/// 0 until Python ends.
std::atomic<pid_t> main_thread = 0;

/// Null with Python's error set: there is no memory. What a rank wrote may be in any encoding, and may be cut in the
/// midst of a character.
Reference decoded(std::string_view text) {
  return Reference(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

}  // namespace

std::string text_of(PyObject* object) {
  Py_ssize_t bytes = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(object, &bytes);
  if (text == nullptr) throw ErrorIsSet();
  return {text, static_cast<std::size_t>(bytes)};
}

std::string_view bytes_of(PyObject* object) {
  char* begin = nullptr;
  Py_ssize_t bytes = 0;
  if (PyBytes_AsStringAndSize(object, &begin, &bytes) != 0) throw ErrorIsSet();
  return {begin, static_cast<std::size_t>(bytes)};
}

long number_of(PyObject* object) {
  const long number = PyLong_AsLong(object);
  if (number == -1 && PyErr_Occurred() != nullptr) throw ErrorIsSet();
  return number;
}

std::chrono::nanoseconds time_of(PyObject* seconds) {
  if (seconds == Py_None) return std::chrono::nanoseconds::max();
  const double number = PyFloat_AsDouble(seconds);
  if (number == -1 && PyErr_Occurred() != nullptr) throw ErrorIsSet();
  constexpr double kMost = 9e9;  // More would not fit.
  if (std::isnan(number)) throw UsageError("the timeout is not a number");
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::fmin(std::fmax(number, 0), kMost) * 1e9));
}

Reference text(std::string_view text) {
  return checked(decoded(text).release());
}

void note_end_of_python() {
  main_thread = gettid();
  for (int count = entering; count != 0; count = entering) entering.wait(count);
}

bool is_shut_out() {
  const pid_t thread = main_thread;
  return thread != 0 && thread != gettid();
}

namespace {

void set_error(PyObject* type, const char* what) {
  const Reference message = decoded(what);
  if (message) PyErr_SetObject(type, message.get());
}

void set_system_error(const SystemError& error) {
  const Reference message = decoded(error.what());
  const Reference arguments(message ? Py_BuildValue("(iO)", error.errno_value(), message.get()) : nullptr);
  if (arguments) PyErr_SetObject(PyExc_OSError, arguments.get());
}

}  // namespace

void set_error() noexcept {
  try {
    throw;
  } catch (const ErrorIsSet&) {
    if (PyErr_Occurred() == nullptr) set_error(PyExc_SystemError, "an error without an exception");
  } catch (const TimeoutError& error) {
    set_error(PyExc_TimeoutError, error.what());
  } catch (const SystemError& error) {
    if (PyErr_Occurred() == nullptr) set_system_error(error);  // A handler of a signal raised what is set.
  } catch (const UsageError& error) {
    set_error(PyExc_ValueError, error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    set_error(PyExc_RuntimeError, error.what());
  } catch (...) {
    set_error(PyExc_RuntimeError, "an unknown exception");
  }
}

}  // namespace retinue::python
