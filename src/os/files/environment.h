#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace retinue {

/// The variable's value; none where it isn't set, or empty.
std::optional<std::string> find_variable(const char* name);

/// This process's environment, NAME=value each.
std::vector<std::string> current_environment();

/// `base` with `changes`, NAME=value each; what is no variable is left out.
std::vector<std::string> changed_environment(const std::vector<std::string>& base,
                                             const std::map<std::string, std::string>& changes);

/// Makes `base` with `changes` this process's environment, all at once: setenv searches the whole of it for each name.
/// Threads: only while no other thread reads the environment.
void replace_environment(const std::vector<std::string>& base, const std::map<std::string, std::string>& changes);

}  // namespace retinue
