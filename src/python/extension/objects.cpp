#include "python/extension/objects.h"

#include <cerrno>
#include <new>
#include <stdexcept>
#include <string_view>

#include "retinue/base/error.h"

namespace retinue::python {

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

namespace {

void set_system_error(const SystemError& error) {
  const Reference arguments(Py_BuildValue("(is)", error.errno_value(), error.what()));
  if (arguments) PyErr_SetObject(PyExc_OSError, arguments.get());
}

}  // namespace

void set_error() noexcept {
  try {
    throw;
  } catch (const ErrorIsSet&) {
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_SystemError, "an error without an exception");
  } catch (const TimeoutError& error) {
    PyErr_SetString(PyExc_TimeoutError, error.what());
  } catch (const SystemError& error) {
    if (PyErr_Occurred() == nullptr) set_system_error(error);  // A handler of a signal raised what is set.
  } catch (const UsageError& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an unknown exception");
  }
}

}  // namespace retinue::python
