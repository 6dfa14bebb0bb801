#include "python/extension/sync_types.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>

#include "python/extension/boxed.h"
#include "python/extension/message.h"
#include "retinue/base/error.h"
#include "retinue/ipc/barrier.h"
#include "retinue/ipc/condition.h"
#include "retinue/ipc/event.h"
#include "retinue/ipc/lock.h"
#include "retinue/ipc/semaphore.h"

namespace retinue::python {
namespace {

template <class Value>
PyObject* create(PyObject*, PyObject*) {
  return answer([] { return boxed(Value::create()); });
}

template <class Value>
PyObject* create_counting(PyObject*, PyObject* value) {
  return answer([&] { return boxed(Value(std::int64_t{number_of(value)})); });
}

PyObject* create_condition(PyObject*, PyObject* lock) {
  return answer([&] {
    auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(lock));
    if (type == type_of_boxed<Lock>) return boxed(Condition(value_of<Lock>(lock)));
    if (type == type_of_boxed<RLock>) return boxed(Condition(value_of<RLock>(lock)));
    throw UsageError("the lock of a Condition must be a Lock or an RLock");
  });
}

PyObject* create_barrier(PyObject*, PyObject* parties) {
  return answer(
      [&] { return boxed(Barrier(static_cast<int>(std::clamp<long>(number_of(parties), INT_MIN, INT_MAX)))); });
}

template <class Value>
PyObject* acquire(PyObject* self, PyObject* timeout) {
  return answer([&] {
    const std::chrono::nanoseconds time = time_of(timeout);
    return truth(wait_without_gil(time, [&](auto limit) { return value_of<Value>(self).acquire(limit); }));
  });
}

template <class Value>
PyObject* release(PyObject* self, PyObject*) {
  return answer([&] {
    value_of<Value>(self).release();
    return none();
  });
}

template <class Value>
PyObject* owner_died(PyObject* self, PyObject*) {
  return answer([&] { return truth(value_of<Value>(self).owner_died()); });
}

template <class Value>
PyObject* is_held(PyObject* self, PyObject*) {
  return answer([&] { return truth(value_of<Value>(self).is_held_here()); });
}

template <class Value>
PyObject* locked(PyObject* self, PyObject*) {
  return answer([&] { return truth(value_of<Value>(self).locked()); });
}

template <class Value>
PyObject* get_value(PyObject* self, PyObject*) {
  return answer([&] { return checked(PyLong_FromUnsignedLong(value_of<Value>(self).get_value())); });
}

PyObject* set(PyObject* self, PyObject*) {
  return answer([&] {
    value_of<Event>(self).set();
    return none();
  });
}

PyObject* clear(PyObject* self, PyObject*) {
  return answer([&] {
    value_of<Event>(self).clear();
    return none();
  });
}

PyObject* is_set(PyObject* self, PyObject*) {
  return answer([&] { return truth(value_of<Event>(self).is_set()); });
}

PyObject* wait_for_event(PyObject* self, PyObject* timeout) {
  return answer([&] {
    const std::chrono::nanoseconds time = time_of(timeout);
    return truth(wait_without_gil(time, [&](auto limit) { return value_of<Event>(self).wait(limit); }));
  });
}

PyObject* wait_for_condition(PyObject* self, PyObject* timeout) {
  return answer([&] {
    const std::chrono::nanoseconds time = time_of(timeout);
    bool is_notified = false;
    {
      const WithoutGil without_gil;
      is_notified = value_of<Condition>(self).wait(time);
    }
    return truth(is_notified);
  });
}

PyObject* notify(PyObject* self, PyObject* count) {
  return answer([&] {
    const std::size_t number = PyLong_AsSize_t(count);
    if (PyErr_Occurred() != nullptr) throw ErrorIsSet();
    value_of<Condition>(self).notify(static_cast<std::uint32_t>(std::min<std::size_t>(number, UINT32_MAX)));
    return none();
  });
}

PyObject* notify_all(PyObject* self, PyObject*) {
  return answer([&] {
    value_of<Condition>(self).notify_all();
    return none();
  });
}

/// Errors: ErrorIsSet if it raises.
void call(PyObject* action) {
  PyGILState_STATE state{};
  enter_python([&] { state = PyGILState_Ensure(); });
  const Reference result(PyObject_CallFunctionObjArgs(action, nullptr));
  const bool is_error = !result;
  PyGILState_Release(state);
  if (is_error) throw ErrorIsSet();
}

PyObject* wait_at_barrier(PyObject* self, PyObject* arguments) {
  return answer([&] {
    PyObject* action = nullptr;
    PyObject* timeout = nullptr;
    if (PyArg_ParseTuple(arguments, "OO", &action, &timeout) == 0) throw ErrorIsSet();
    const std::chrono::nanoseconds time = time_of(timeout);
    const Barrier::Action calls = action == Py_None ? Barrier::Action() : [action] { call(action); };
    int before = 0;
    std::string reason;
    {
      const WithoutGil without_gil;
      try {
        before = value_of<Barrier>(self).wait(calls, time);
      } catch (const BrokenBarrierError& error) {
        reason = error.what();
      }
    }
    return reason.empty() ? checked(PyLong_FromLong(before)) : text(reason);
  });
}

PyObject* reset(PyObject* self, PyObject*) {
  return answer([&] {
    const WithoutGil without_gil;
    value_of<Barrier>(self).reset();
    return none();
  });
}

PyObject* abort_barrier(PyObject* self, PyObject*) {
  return answer([&] {
    const WithoutGil without_gil;
    value_of<Barrier>(self).abort();
    return none();
  });
}

PyObject* parties(PyObject* self, PyObject*) {
  return answer([&] { return checked(PyLong_FromLong(value_of<Barrier>(self).parties())); });
}

PyObject* n_waiting(PyObject* self, PyObject*) {
  return answer([&] { return checked(PyLong_FromLong(value_of<Barrier>(self).n_waiting())); });
}

PyObject* broken(PyObject* self, PyObject*) {
  return answer([&] { return truth(value_of<Barrier>(self).broken()); });
}

constexpr const char* kCreate = "create(): makes one in the job of this process.";
constexpr const char* kSent = "(bytes, blocks), from which received() makes this object elsewhere.";
constexpr const char* kReceived = "received(bytes), while the blocks are held.";
constexpr const char* kAcquire = "acquire(seconds or None): whether it was free in time.";

template <class Value>
PyMethodDef lock_methods[] = {
    {"create", &create<Value>, METH_NOARGS | METH_STATIC, kCreate},
    {"acquire", &acquire<Value>, METH_O, kAcquire},
    {"release", &release<Value>, METH_NOARGS, "Releases it; ValueError if this thread does not hold it."},
    {"is_held", &is_held<Value>, METH_NOARGS, "Whether this thread holds it."},
    {"locked", &locked<Value>, METH_NOARGS, "Whether some thread holds it."},
    {"owner_died", &owner_died<Value>, METH_NOARGS, "Whether the holder before this thread died with it."},
    {"sent", &sent<Value>, METH_NOARGS, kSent},
    {"received", &received<Value>, METH_O | METH_STATIC, kReceived},
    {nullptr, nullptr, 0, nullptr},
};

template <class Value>
PyMethodDef semaphore_methods[] = {
    {"create", &create_counting<Value>, METH_O | METH_STATIC, "create(value): makes one in the job of this process."},
    {"acquire", &acquire<Value>, METH_O, kAcquire},
    {"release", &release<Value>, METH_NOARGS, "Adds one."},
    {"get_value", &get_value<Value>, METH_NOARGS, "The value now."},
    {"sent", &sent<Value>, METH_NOARGS, kSent},
    {"received", &received<Value>, METH_O | METH_STATIC, kReceived},
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef event_methods[] = {
    {"create", &create<Event>, METH_NOARGS | METH_STATIC, kCreate},
    {"set", &set, METH_NOARGS, "Sets it."},
    {"clear", &clear, METH_NOARGS, "Clears it."},
    {"is_set", &is_set, METH_NOARGS, "Whether it is set."},
    {"wait", &wait_for_event, METH_O, "wait(seconds or None): whether it was set in time."},
    {"sent", &sent<Event>, METH_NOARGS, kSent},
    {"received", &received<Event>, METH_O | METH_STATIC, kReceived},
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef condition_methods[] = {
    {"create", &create_condition, METH_O | METH_STATIC, "create(Lock or RLock): makes one with that lock."},
    {"wait", &wait_for_condition, METH_O, "wait(seconds or None): whether a notify came in time."},
    {"notify", &notify, METH_O, "notify(count): wakes so many."},
    {"notify_all", &notify_all, METH_NOARGS, "Wakes all."},
    {"sent", &sent<Condition>, METH_NOARGS, kSent},
    {"received", &received<Condition>, METH_O | METH_STATIC, kReceived},
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef barrier_methods[] = {
    {"create", &create_barrier, METH_O | METH_STATIC, "create(parties): makes one in the job of this process."},
    {"wait", &wait_at_barrier, METH_VARARGS,
     "wait(action or None, seconds or None): how many had come before, or how it broke, as str."},
    {"reset", &reset, METH_NOARGS, "Repairs and empties it."},
    {"abort", &abort_barrier, METH_NOARGS, "Breaks it."},
    {"parties", &parties, METH_NOARGS, "How many it waits for."},
    {"n_waiting", &n_waiting, METH_NOARGS, "How many wait now."},
    {"broken", &broken, METH_NOARGS, "Whether it is broken."},
    {"sent", &sent<Barrier>, METH_NOARGS, kSent},
    {"received", &received<Barrier>, METH_O | METH_STATIC, kReceived},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void add_sync_types(PyObject* module) {
  add_type<Lock>(module, "retinue._core.Lock", lock_methods<Lock>);
  add_type<RLock>(module, "retinue._core.RLock", lock_methods<RLock>);
  add_type<Semaphore>(module, "retinue._core.Semaphore", semaphore_methods<Semaphore>);
  add_type<BoundedSemaphore>(module, "retinue._core.BoundedSemaphore", semaphore_methods<BoundedSemaphore>);
  add_type<Event>(module, "retinue._core.Event", event_methods);
  add_type<Condition>(module, "retinue._core.Condition", condition_methods);
  add_type<Barrier>(module, "retinue._core.Barrier", barrier_methods);
}

}  // namespace retinue::python
