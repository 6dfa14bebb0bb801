#pragma once

#include <optional>
#include <string>
#include <vector>

#include "retinue/collective/call.h"

namespace retinue::python {

/// Returns file and line of the innermost Python function of this thread outside of the libraries' folders. Returns
/// nothing on a thread that runs no Python code, or where the interpreter lacks a function that this needs.
/// Cost: about a microsecond.
std::optional<CallSite> caller_site();

/// Sets the folders of libraries whose own functions are no call sites, such as ".../site-packages/torch/".
void set_library_folders(std::vector<std::string> folders);

}  // namespace retinue::python
