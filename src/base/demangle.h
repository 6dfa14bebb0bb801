#pragma once

#include <string>

namespace retinue {

/// A mangled name of the compiler's, of a type or function, as a reader writes it; `name` itself where it is none.
std::string demangled(const char* name);

/// The same of a type, as people declare it: std::vector<std::string>, without allocators.
std::string type_name(const char* mangled);

}  // namespace retinue
