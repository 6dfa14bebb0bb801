#pragma once

#include <cstddef>

namespace retinue::python {

/// Of CPython, opaque here.
struct Object;
struct Frame;
struct ThreadState;

/// The functions of CPython's stable ABI that this library uses, and PyFrame_GetBack, which each version since 3.9 has.
/// They are those of the running interpreter, so that one library serves all versions.
struct Interpreter {
  ThreadState* (*this_thread)() = nullptr;
  int (*acquire)() = nullptr;
  void (*release)(int) = nullptr;
  Frame* (*newest_frame)() = nullptr;
  Frame* (*caller_of)(Frame*) = nullptr;
  Object* (*code_of)(Frame*) = nullptr;
  int (*line_of)(Frame*) = nullptr;
  Object* (*attribute)(Object*, const char*) = nullptr;
  const char* (*text_of)(Object*, std::ptrdiff_t*) = nullptr;
  void (*retain)(void*) = nullptr;
  void (*release_object)(void*) = nullptr;
  void (*clear_error)() = nullptr;
  int (*check_signals)() = nullptr;
  void (*fetch_error)(Object**, Object**, Object**) = nullptr;
  void (*normalize_error)(Object**, Object**, Object**) = nullptr;
  int (*set_traceback)(Object*, Object*) = nullptr;
  void (*set_error)(Object*, Object*) = nullptr;
  int (*call_later)(int (*)(void*), void*) = nullptr;
  bool is_whole = true;  ///< None of them is missing.

  Interpreter();
};

const Interpreter& interpreter();

/// Whether this thread may run Python code: one that Python started, or its main thread.
bool is_python_thread();

/// Holds the interpreter's lock for a scope, on a Python thread.
class GilScope {
 public:
  GilScope() : state_(interpreter().acquire()) {}
  ~GilScope() { interpreter().release(state_); }
  GilScope(const GilScope&) = delete;
  GilScope& operator=(const GilScope&) = delete;

 private:
  int state_;
};

}  // namespace retinue::python
