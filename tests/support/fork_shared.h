#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <new>
#include <type_traits>

#include "retinue/base/error.h"

namespace retinue::test {

/// A row of T in memory that the test shares with the processes which it forks.
template <class T>
class ForkShared {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  explicit ForkShared(std::size_t count = 1) : bytes_(count * sizeof(T)) {
    void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw SystemError("mmap of memory that forked processes share", errno);
    first_ = static_cast<T*>(memory);
    for (std::size_t i = 0; i < count; ++i) new (first_ + i) T();
  }
  ~ForkShared() { munmap(first_, bytes_); }
  ForkShared(const ForkShared&) = delete;
  ForkShared& operator=(const ForkShared&) = delete;

  T* get() const { return first_; }
  T& operator*() const { return *first_; }
  T* operator->() const { return first_; }

 private:
  std::size_t bytes_;
  T* first_;
};

}  // namespace retinue::test
