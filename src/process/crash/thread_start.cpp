#include "process/crash/thread_start.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <exception>
#include <memory>
#include <new>

#include "process/crash/crash_handler.h"

namespace retinue {
namespace {

using CreateFunction = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

struct ThreadStart {
  void* (*function)(void*);
  void* argument;
};

std::atomic<bool> gives_signal_stacks;
std::atomic<CreateFunction> next_create;

CreateFunction find_next_create() {
  if (CreateFunction known = next_create.load(std::memory_order_relaxed)) return known;
  const auto found = reinterpret_cast<CreateFunction>(dlsym(RTLD_NEXT, "pthread_create"));
  next_create.store(found, std::memory_order_relaxed);
  return found;
}

}  // namespace

void guard_new_threads() {
  if (find_next_create() != nullptr) gives_signal_stacks.store(true, std::memory_order_relaxed);
}

/// The new thread's function; no unnamed namespace, so that stacks can be cut here.
void* run_guarded_thread(void* raw_start) {
  const auto owned = static_cast<ThreadStart*>(raw_start);
  const ThreadStart start = *owned;
  delete owned;  // Now: the function may end the thread without returning.
  try {
    use_signal_stack();
  } catch (const std::exception&) {
    // Without memory for it the thread runs as any other does.
  }
  return start.function(start.argument);
}

}  // namespace retinue

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // They do this themselves.
// Weak: a program's own, as that of an allocator, goes first.
extern "C" [[gnu::weak, gnu::visibility("default")]] int pthread_create(pthread_t* thread,
                                                                        const pthread_attr_t* attributes,
                                                                        void* (*function)(void*),
                                                                        void* argument) noexcept {
  const retinue::CreateFunction create = retinue::find_next_create();
  if (create == nullptr) return EAGAIN;
  if (!retinue::gives_signal_stacks.load(std::memory_order_relaxed))
    return create(thread, attributes, function, argument);
  std::unique_ptr<retinue::ThreadStart> start(new (std::nothrow) retinue::ThreadStart{function, argument});
  if (!start) return EAGAIN;
  const int error = create(thread, attributes, &retinue::run_guarded_thread, start.get());
  if (error == 0) static_cast<void>(start.release());  // The thread frees it.
  return error;
}
#endif
