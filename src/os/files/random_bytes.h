#pragma once

#include <cstddef>
#include <string>

namespace retinue {

/// Bytes that nobody can guess, from the kernel. Errors: SystemError.
std::string random_bytes(std::size_t count);

/// Twice as many letters 0-9, a-f as there are bytes.
std::string in_hex(const std::string& bytes);

}  // namespace retinue
