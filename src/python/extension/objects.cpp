#include "python/extension/objects.h"

#include <sys/types.h>

#include <atomic>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string_view>

#include "retinue/base/error.h"

namespace retinue::python {
namespace {

/// 0 until Python ends.
std::atomic<pid_t> main_thread = 0;

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

Reference text(std::string_view text) {
  // What a rank wrote may be cut in the midst of a character.
  return checked(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

void note_end_of_python() {
  main_thread = gettid();
}

bool is_shut_out() {
  const pid_t thread = main_thread;
  return thread != 0 && thread != gettid();
}

namespace {

/// `what` may be in any encoding.
void set_error(PyObject* type, const char* what) {
  const Reference message(PyUnicode_DecodeUTF8(what, static_cast<Py_ssize_t>(std::strlen(what)), "replace"));
  if (message) PyErr_SetObject(type, message.get());
}

void set_system_error(const SystemError& error) {
  const char* const what = error.what();
  const Reference message(PyUnicode_DecodeUTF8(what, static_cast<Py_ssize_t>(std::strlen(what)), "replace"));
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
