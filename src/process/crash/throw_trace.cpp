#include "process/crash/throw_trace.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <typeinfo>

#include "base/thrown_text.h"
#include "os/sync/clock.h"

namespace retinue {
namespace {

using ThrowFunction = void (*)(void*, std::type_info*, void (*)(void*));

// Entries are found by the exception object's address. A living exception's address belongs to nobody else, so a thread
// that throws and catches all the time rewrites one entry over and over and does not displace the others.
constexpr std::size_t kSets = 16;
constexpr std::size_t kWays = 4;
constexpr int kMaxLockAttempts = 4096;

struct Entry {
  const void* object;
  const std::type_info* type;
  ThrowTrace trace;
};

struct Set {
  std::atomic<bool> locked;
  Entry entries[kWays];

  /// Gives up instead of waiting: a fork may have copied the lock while somebody held it.
  bool lock() {
    for (int i = 0; i < kMaxLockAttempts; ++i) {
      if (!locked.exchange(true, std::memory_order_acquire)) return true;  // Pairs with unlock().
    }
    return false;
  }
  void unlock() { locked.store(false, std::memory_order_release); }
};

std::atomic<bool> traces_throws;
std::atomic<ThrowFunction> next_throw;
Set sets[kSets];

Set& set_of(const void* object) {
  // Exception objects are 16-byte aligned and of a few sizes: the multiplication spreads the bits that differ.
  const auto hash = (reinterpret_cast<std::uintptr_t>(object) >> 4) * 0x9e3779b97f4a7c15u;
  return sets[(hash >> 32) % kSets];
}

/// nullptr: the C++ runtime is linked statically, and its own __cxa_throw is called instead of ours.
ThrowFunction find_next_throw() {
  if (ThrowFunction known = next_throw.load(std::memory_order_relaxed)) return known;
  const auto found = reinterpret_cast<ThrowFunction>(dlsym(RTLD_NEXT, "__cxa_throw"));
  next_throw.store(found, std::memory_order_relaxed);
  return found;
}

Entry& entry_for(Set& set, const void* object) {
  Entry* oldest = &set.entries[0];
  for (Entry& entry : set.entries) {
    if (entry.object == object) return entry;
    if (entry.trace.time_ns < oldest->trace.time_ns) oldest = &entry;
  }
  return *oldest;
}

void remember_throw(const void* object, const std::type_info* type, std::uintptr_t return_address) {
  ThrowTrace trace;
  trace.time_ns = monotonic_ns();
  capture_stack(trace.stack, {.first_pc = return_address});
  Set& set = set_of(object);
  if (!set.lock()) return;
  Entry& entry = entry_for(set, object);
  entry.object = object;
  entry.type = type;
  entry.trace = trace;
  set.unlock();
}

}  // namespace

void enable_throw_trace() {
  prepare_stack_capture();
  if (find_next_throw() == nullptr) return;
  traces_throws.store(true, std::memory_order_relaxed);
}

bool find_throw_trace(const std::exception_ptr& exception, ThrowTrace& trace) {
  if (!exception) return false;
  // exception_ptr is one pointer, to the object that was given to __cxa_throw (the C++ runtime's ABI).
  static_assert(sizeof(std::exception_ptr) == sizeof(void*));
  const void* object = nullptr;
  std::memcpy(&object, static_cast<const void*>(&exception), sizeof object);
  Set& set = set_of(object);
  if (!set.lock()) return false;
  bool found = false;
  for (const Entry& entry : set.entries) {
    if (entry.object != object || entry.type != exception.__cxa_exception_type()) continue;
    trace = entry.trace;
    found = true;
  }
  set.unlock();
  return found;
}

}  // namespace retinue

// Defines __cxa_throw. The name is given to the assembler only, since compilers declare it themselves, with types that
// differ between their versions. Weak: if the C++ runtime is linked statically, its own definition is used, and
// exceptions have no stack.
extern "C" [[gnu::weak, gnu::visibility("default")]] void retinue_throw(void* object, std::type_info* type,
                                                                        void (*destroy)(void*)) __asm__("__cxa_throw");

void retinue_throw(void* object, std::type_info* type, void (*destroy)(void*)) {
  retinue::ThrownText::note(object, type);
  if (retinue::traces_throws.load(std::memory_order_relaxed)) {
    retinue::remember_throw(object, type, reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)));
  }
  const retinue::ThrowFunction next = retinue::find_next_throw();
  if (next == nullptr) {
    std::fputs("retinue: cannot find __cxa_throw of the C++ runtime: link libstdc++\n", stderr);
    std::abort();
  }
  next(object, type, destroy);
  __builtin_unreachable();
}
