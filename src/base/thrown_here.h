#pragma once

#include <exception>
#include <utility>

namespace retinue {

/// As std::make_exception_ptr, but by a throw: reports know the stack of that, and who rethrows it changes nothing.
template <class Exception>
std::exception_ptr thrown_here(Exception error) {
  try {
    throw std::move(error);
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace retinue
