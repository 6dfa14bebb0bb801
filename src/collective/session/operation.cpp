#include "collective/session/operation.h"

#include <mutex>
#include <unordered_set>

namespace retinue {
namespace {

/// The numbers of those that are there. Never destroyed: requests in statics outlive it otherwise.
struct Drivers {
  static Drivers& get() {
    static auto* const drivers = new Drivers;
    return *drivers;
  }

  std::mutex mutex;
  std::uint64_t last = 0;
  std::unordered_set<std::uint64_t> numbers;
};

[[maybe_unused]] const Drivers& drivers_at_start = Drivers::get();  // See made_at_start in os/sync/futex.cpp.

std::uint64_t register_driver() {
  Drivers& drivers = Drivers::get();
  const std::lock_guard lock(drivers.mutex);
  drivers.numbers.insert(++drivers.last);
  return drivers.last;
}

}  // namespace

OperationDriver::OperationDriver() : number_(register_driver()) {}

OperationDriver::~OperationDriver() {
  Drivers& drivers = Drivers::get();
  const std::lock_guard lock(drivers.mutex);
  drivers.numbers.erase(number_);
}

bool OperationDriver::is_there(std::uint64_t number) {
  Drivers& drivers = Drivers::get();
  const std::lock_guard lock(drivers.mutex);
  return drivers.numbers.contains(number);
}

}  // namespace retinue
