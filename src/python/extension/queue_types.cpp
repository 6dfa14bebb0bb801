#include "python/extension/queue_types.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "python/extension/boxed.h"
#include "python/extension/message.h"
#include "retinue/base/deadline.h"
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

// For as long as the process.
PyObject* bounded_type = nullptr;
PyObject* unbounded_type = nullptr;

/// Calls `attempt(time)`, which returns something true unless that time was over, until all of `timeout` is. Others run
/// Python code meanwhile, and so do handlers of signals, which end it by their exception. Errors: ErrorIsSet.
template <class Attempt>
auto without_gil(std::chrono::nanoseconds timeout, const Attempt& attempt) {
  constexpr std::chrono::milliseconds kBetweenSignals(50);
  const bool runs_handlers = gettid() == getpid();  // Python runs them on the main thread only.
  const Deadline deadline = Deadline::after(timeout);
  for (;;) {
    auto result = [&] {
      const WithoutGil without_gil;
      return attempt(runs_handlers ? deadline.left(kBetweenSignals) : timeout);
    }();
    if (result || !runs_handlers || deadline.passed()) return result;
    if (PyErr_CheckSignals() != 0) throw ErrorIsSet();
  }
}

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
    return truth(without_gil(time, [&](auto part) { return put_in(value_of<Queue>(self), message, part); }));
  });
}

template <class Queue>
PyObject* get(PyObject* self, PyObject* timeout) {
  return answer([&] {
    const std::chrono::nanoseconds time = time_of(timeout);
    std::optional<Message> message = without_gil(time, [&](auto part) { return value_of<Queue>(self).get(part); });
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

template <class Queue>
PyObject* sent(PyObject* self, PyObject*) {
  return answer([&] {
    detail::Encoded encoded = detail::encode_value(value_of<Queue>(self));
    return tuple_of({std::move(encoded.bytes), std::move(encoded.references)});
  });
}

template <class Queue>
Reference decoded(PyObject* type, std::string_view bytes) {
  Queue queue;
  detail::decode_value(bytes, queue);
  return boxed(type, std::move(queue));
}

PyMethodDef bounded_methods[] = {
    {"put", &put<Bounded>, METH_VARARGS, "put(pickle, blocks, seconds or None): whether there was space in time."},
    {"get", &get<Bounded>, METH_O, "get(seconds or None): (pickle, blocks), or None if no message came in time."},
    {"empty", &empty<Bounded>, METH_NOARGS, "Whether it is empty."},
    {"full", &full, METH_NOARGS, "Whether it is full."},
    {"size", &size<Bounded>, METH_NOARGS, "How many messages nobody got yet."},
    {"sent", &sent<Bounded>, METH_NOARGS, "(bytes, blocks), from which queue_of makes this queue in another process."},
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef unbounded_methods[] = {
    {"put", &put<Unbounded>, METH_VARARGS, "As Queue.put. Does not wait."},
    {"get", &get<Unbounded>, METH_O, "As Queue.get."},
    {"empty", &empty<Unbounded>, METH_NOARGS, "Whether it is empty."},
    {"size", &size<Unbounded>, METH_NOARGS, "As Queue.size."},
    {"sent", &sent<Unbounded>, METH_NOARGS, "As Queue.sent."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyObject* queue(PyObject*, PyObject* capacity) {
  return answer([&] {
    const long number = number_of(capacity);
    if (number <= 0) return boxed(unbounded_type, Unbounded::create());
    return boxed(bounded_type, Bounded({.capacity = static_cast<std::size_t>(number)}));
  });
}

PyObject* queue_of(PyObject*, PyObject* arguments) {
  return answer([&] {
    int is_simple = 0;
    PyObject* bytes = nullptr;
    if (PyArg_ParseTuple(arguments, "pO", &is_simple, &bytes) == 0) throw ErrorIsSet();
    return is_simple != 0 ? decoded<Unbounded>(unbounded_type, bytes_of(bytes))
                          : decoded<Bounded>(bounded_type, bytes_of(bytes));
  });
}

void add_queue_types(PyObject* module) {
  bounded_type = add_type<Bounded>(module, "retinue._core.Queue", bounded_methods);
  unbounded_type = add_type<Unbounded>(module, "retinue._core.SimpleQueue", unbounded_methods);
}

}  // namespace retinue::python
