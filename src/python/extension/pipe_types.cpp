#include "python/extension/pipe_types.h"

#include <chrono>
#include <optional>
#include <utility>

#include "python/extension/boxed.h"
#include "python/extension/message.h"
#include "retinue/base/error.h"
#include "retinue/ipc/pipe.h"

namespace retinue::python {
namespace {

using End = Connection<Message>;

PyObject* send(PyObject* self, PyObject* arguments) {
  return answer([&] {
    PyObject* pickle = nullptr;
    PyObject* blocks = nullptr;
    if (PyArg_ParseTuple(arguments, "OO", &pickle, &blocks) == 0) throw ErrorIsSet();
    const Message message = message_of(pickle, blocks);
    try {
      wait_without_gil(std::chrono::nanoseconds::max(),
                       [&](auto limit) { return value_of<End>(self).send(message, limit); });
    } catch (const Closed&) {
      return truth(false);
    }
    return truth(true);
  });
}

PyObject* recv(PyObject* self, PyObject*) {
  return answer([&] {
    std::optional<Message> message;
    try {
      message = wait_without_gil(std::chrono::nanoseconds::max(),
                                 [&](auto limit) { return value_of<End>(self).recv(limit); });
    } catch (const Closed&) {
      return none();
    }
    return tuple_of(*std::move(message));
  });
}

PyObject* poll(PyObject* self, PyObject* timeout) {
  return answer([&] {
    const std::chrono::nanoseconds time = time_of(timeout);
    return truth(wait_without_gil(time, [&](auto limit) { return value_of<End>(self).poll(limit); }));
  });
}

PyObject* descriptor(PyObject* self, PyObject*) {
  return answer([&] { return checked(PyLong_FromLong(value_of<End>(self).descriptor())); });
}

PyMethodDef end_methods[] = {
    {"send", &send, METH_VARARGS, "send(pickle, blocks): waits while it is full; False if nobody has the other end."},
    {"recv", &recv, METH_NOARGS, "Waits for (pickle, blocks); None if nobody has the other end and all were received."},
    {"poll", &poll, METH_O, "poll(seconds or None): whether recv() would return at once in that time."},
    {"descriptor", &descriptor, METH_NOARGS, "A descriptor that is readable when recv() would return at once."},
    {"sent", &sent<End>, METH_NOARGS, "(bytes, blocks), from which received() makes this end elsewhere."},
    {"received", &received<End>, METH_O | METH_STATIC, "received(bytes), while the blocks are held."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyObject* pipe(PyObject*, PyObject* duplex) {
  return answer([&] {
    const int is_duplex = PyObject_IsTrue(duplex);
    if (is_duplex < 0) throw ErrorIsSet();
    auto [first, second] = Pipe<Message>::create({.duplex = is_duplex != 0});
    const Reference one = boxed(std::move(first));
    const Reference other = boxed(std::move(second));
    return checked(PyTuple_Pack(2, one.get(), other.get()));
  });
}

void add_pipe_types(PyObject* module) {
  add_type<End>(module, "retinue._core.Connection", end_methods);
}

}  // namespace retinue::python
