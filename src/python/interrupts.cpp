#include "python/interrupts.h"

#include <memory>

#include "python/interpreter.h"

namespace retinue::python {
namespace {

/// What a handler threw, as Python keeps it.
class Thrown {
 public:
  Thrown() {
    Object* traceback = nullptr;
    python_.fetch_error(&type_, &value_, &traceback);
    python_.normalize_error(&type_, &value_, &traceback);
    if (traceback != nullptr) python_.set_traceback(value_, traceback);
    if (traceback != nullptr) python_.release_object(traceback);
  }
  ~Thrown() {
    python_.release_object(type_);
    python_.release_object(value_);
  }
  Thrown(const Thrown&) = delete;
  Thrown& operator=(const Thrown&) = delete;

  /// The exception that is being handled becomes its context.
  void throw_it() const { python_.set_error(type_, value_); }

 private:
  const Interpreter& python_ = interpreter();
  Object* type_ = nullptr;
  Object* value_ = nullptr;
};

/// Called by Python on its main thread, with the lock.
int throw_later(void* thrown) {
  const std::unique_ptr<Thrown> error(static_cast<Thrown*>(thrown));
  error->throw_it();
  return -1;
}

}  // namespace

bool is_interrupted_by_handler() {
  if (!is_python_thread()) return false;
  const Interpreter& python = interpreter();
  const GilScope gil;
  if (python.check_signals() == 0) return false;
  auto error = std::make_unique<Thrown>();
  if (python.call_later(&throw_later, error.get()) == 0) static_cast<void>(error.release());
  return true;  // Without room for one more call, only the error of the wait is left.
}

}  // namespace retinue::python
