#include "python/backend/interrupts.h"

#include <memory>

#include "python/backend/interpreter.h"

namespace retinue::python {
namespace {

/// The exception that a handler raised.
class Raised {
 public:
  Raised() {
    Object* traceback = nullptr;
    python_.fetch_error(&type_, &value_, &traceback);
    python_.normalize_error(&type_, &value_, &traceback);
    if (traceback == nullptr) return;
    python_.set_traceback(value_, traceback);
    python_.release_object(traceback);
  }
  ~Raised() {
    python_.release_object(type_);
    python_.release_object(value_);
  }
  Raised(const Raised&) = delete;
  Raised& operator=(const Raised&) = delete;

  /// The exception that is being handled becomes its context.
  void raise() const { python_.set_error(type_, value_); }

 private:
  const Interpreter& python_ = interpreter();
  Object* type_ = nullptr;
  Object* value_ = nullptr;
};

/// Called by Python on its main thread, with the lock.
int raise_later(void* raised) {
  const std::unique_ptr<Raised> error(static_cast<Raised*>(raised));
  error->raise();
  return -1;
}

}  // namespace

bool is_interrupted_by_handler() {
  if (!is_python_thread()) return false;
  const Interpreter& python = interpreter();
  const GilScope gil;
  if (python.check_signals() == 0) return false;
  auto error = std::make_unique<Raised>();
  if (python.call_later(&raise_later, error.get()) == 0) static_cast<void>(error.release());
  return true;  // If Python's queue of pending calls is full, only the error of the wait is left.
}

}  // namespace retinue::python
