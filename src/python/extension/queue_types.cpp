#include "python/extension/queue_types.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "python/extension/message.h"
#include "retinue/ipc/archive.h"
#include "retinue/ipc/queue.h"
#include "retinue/ipc/simple_queue.h"

namespace retinue::python {
namespace {

using Bounded = Queue<Message>;

/// A queue without a capacity. It is not known how many messages it holds, so its users count them: one that is killed
/// between its call and its count makes the number wrong for ever, as with multiprocessing.Queue.
class Unbounded {
 public:
  Unbounded() = default;
  static Unbounded create() {
    Unbounded made;
    made.queue_ = SimpleQueue<Message>::create();
    made.count_ = SharedBlock::allocate(sizeof(std::int64_t));
    made.count().store(0);
    return made;
  }

  void put(const Message& message) {
    queue_.put(message);
    ++count();
  }
  std::optional<Message> get(std::chrono::nanoseconds timeout) {
    std::optional<Message> message = queue_.get(timeout);
    if (message) --count();
    return message;
  }
  bool empty() const { return queue_.empty(); }
  std::size_t size() const { return static_cast<std::size_t>(std::max<std::int64_t>(count().load(), 0)); }

  template <class Archive>
  void serialize(Archive& archive) {
    archive(queue_, count_);
  }

 private:
  std::atomic_ref<std::int64_t> count() const {
    return std::atomic_ref<std::int64_t>(*reinterpret_cast<std::int64_t*>(count_.data()));
  }

  SimpleQueue<Message> queue_;
  SharedBlock count_;
};

bool put_in(Bounded& queue, const Message& message, std::chrono::nanoseconds timeout) {
  return queue.put(message, timeout);
}
bool put_in(Unbounded& queue, const Message& message, std::chrono::nanoseconds) {
  queue.put(message);
  return true;
}

template <class Queue>
PyObject* put(PyObject* self, PyObject* arguments) {
  return answer([&] {
    PyObject* pickle = nullptr;
    PyObject* blocks = nullptr;
    PyObject* timeout = nullptr;
    if (PyArg_ParseTuple(arguments, "OOO", &pickle, &blocks, &timeout) == 0) throw ErrorIsSet();
    const Message message = message_of(pickle, blocks);
    const std::chrono::nanoseconds time = time_of(timeout);
    return truth(wait_without_gil(time, [&](auto limit) { return put_in(value_of<Queue>(self), message, limit); }));
  });
}

template <class Queue>
PyObject* get(PyObject* self, PyObject* timeout) {
  return answer([&] {
    const std::chrono::nanoseconds time = time_of(timeout);
    std::optional<Message> message =
        wait_without_gil(time, [&](auto limit) { return value_of<Queue>(self).get(limit); });
    return message ? tuple_of(*std::move(message)) : none();
  });
}

template <class Queue>
PyObject* empty(PyObject* self, PyObject*) {
  return answer([&] { return truth(value_of<Queue>(self).empty()); });
}

PyObject* full(PyObject* self, PyObject*) {
  return answer([&] { return truth(value_of<Bounded>(self).full()); });
}

template <class Queue>
PyObject* size(PyObject* self, PyObject*) {
  return answer([&] { return checked(PyLong_FromSize_t(value_of<Queue>(self).size())); });
}

PyObject* create_bounded(PyObject*, PyObject* capacity) {
  return answer([&] {
    const std::size_t number = PyLong_AsSize_t(capacity);
    if (PyErr_Occurred() != nullptr) throw ErrorIsSet();
    return boxed(Bounded({.capacity = number}));
  });
}

PyObject* create_unbounded(PyObject*, PyObject*) {
  return answer([&] { return boxed(Unbounded::create()); });
}

PyMethodDef bounded_methods[] = {
    {"create", &create_bounded, METH_O | METH_STATIC, "create(capacity): makes one in the job of this process."},
    {"put", &put<Bounded>, METH_VARARGS, "put(pickle, blocks, seconds or None): whether there was space in time."},
    {"get", &get<Bounded>, METH_O, "get(seconds or None): (pickle, blocks), or None if no message came in time."},
    {"empty", &empty<Bounded>, METH_NOARGS, "Whether it is empty."},
    {"full", &full, METH_NOARGS, "Whether it is full."},
    {"size", &size<Bounded>, METH_NOARGS, "How many messages nobody got yet."},
    {"sent", &sent<Bounded>, METH_NOARGS, "(bytes, blocks), from which received() makes this queue elsewhere."},
    {"received", &received<Bounded>, METH_O | METH_STATIC, "received(bytes), while the blocks are held."},
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef unbounded_methods[] = {
    {"create", &create_unbounded, METH_NOARGS | METH_STATIC, "create(): makes one in the job of this process."},
    {"put", &put<Unbounded>, METH_VARARGS, "As Queue.put. Does not wait."},
    {"get", &get<Unbounded>, METH_O, "As Queue.get."},
    {"empty", &empty<Unbounded>, METH_NOARGS, "Whether it is empty."},
    {"size", &size<Unbounded>, METH_NOARGS, "As Queue.size."},
    {"sent", &sent<Unbounded>, METH_NOARGS, "As Queue.sent."},
    {"received", &received<Unbounded>, METH_O | METH_STATIC, "As Queue.received."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void add_queue_types(PyObject* module) {
  add_type<Bounded>(module, "retinue._core.Queue", bounded_methods);
  add_type<Unbounded>(module, "retinue._core.SimpleQueue", unbounded_methods);
}

}  // namespace retinue::python
