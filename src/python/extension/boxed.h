#pragma once

#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "python/extension/objects.h"

namespace retinue::python {

/// A Python object that has a C++ one. Functions are called with the interpreter's lock, and a wait gives it away: the
/// C++ object is used by one thread at a time only where its own functions are.
template <class Value>
struct Boxed {
  PyObject_HEAD;
  std::optional<Value> value;
};

/// The type of such objects, for as long as the process: see add_type.
template <class Value>
inline PyObject* type_of_boxed = nullptr;

template <class Value>
Value& value_of(PyObject* self) {
  return *reinterpret_cast<Boxed<Value>*>(self)->value;
}

/// Frees a `type` that PyType_FromSpec made, and so has a count of its objects.
template <class Value>
void free_boxed(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  reinterpret_cast<Boxed<Value>*>(self)->value.~optional();
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

/// Makes the type of such objects and adds it to the module. `name`, as "retinue._core.Queue", and `methods` live as
/// long as the process. Errors: ErrorIsSet.
template <class Value>
void add_type(PyObject* module, const char* name, PyMethodDef* methods) {
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(&free_boxed<Value>)}, {Py_tp_methods, methods}, {0, nullptr}};
  // Only functions make objects: one without a value would be none.
  PyType_Spec spec = {name, sizeof(Boxed<Value>), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  PyObject* const type = checked(PyType_FromSpec(&spec)).release();
  if (PyModule_AddObject(module, std::strrchr(name, '.') + 1, Reference::to(type).release()) != 0) throw ErrorIsSet();
  type_of_boxed<Value> = type;
}

template <class Value>
Reference boxed(Value value) {
  auto* const type = reinterpret_cast<PyTypeObject*>(type_of_boxed<Value>);
  Reference object = checked(reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc))(type, 0));
  new (&reinterpret_cast<Boxed<Value>*>(object.get())->value) std::optional<Value>(std::move(value));
  return object;
}

}  // namespace retinue::python
