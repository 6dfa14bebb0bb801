#include "python/backend/interpreter.h"

#include <dlfcn.h>

#include <type_traits>

namespace retinue::python {

Interpreter::Interpreter() {
  const auto find = [this](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(RTLD_DEFAULT, name));
    is_whole = is_whole && function != nullptr;
  };
  find(this_thread, "PyGILState_GetThisThreadState");
  find(acquire, "PyGILState_Ensure");
  find(release, "PyGILState_Release");
  find(newest_frame, "PyEval_GetFrame");
  find(caller_of, "PyFrame_GetBack");
  find(code_of, "PyFrame_GetCode");
  find(line_of, "PyFrame_GetLineNumber");
  find(attribute, "PyObject_GetAttrString");
  find(text_of, "PyUnicode_AsUTF8AndSize");
  find(retain, "Py_IncRef");
  find(release_object, "Py_DecRef");
  find(clear_error, "PyErr_Clear");
  find(check_signals, "PyErr_CheckSignals");
  find(fetch_error, "PyErr_Fetch");
  find(normalize_error, "PyErr_NormalizeException");
  find(set_traceback, "PyException_SetTraceback");
  find(set_error, "PyErr_SetObject");
  find(call_later, "Py_AddPendingCall");
}

const Interpreter& interpreter() {
  static const Interpreter found;
  return found;
}

bool is_python_thread() {
  return interpreter().is_whole && interpreter().this_thread() != nullptr;
}

}  // namespace retinue::python
