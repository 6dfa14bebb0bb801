#include "os/files/environment.h"

#include <unistd.h>

#include <cstdlib>
#include <list>

namespace retinue {
namespace {

/// Whoever asked for a variable's address may use it to the end of the process: nothing of this is ever freed.
struct Storage {
  std::vector<std::string> variables;
  std::vector<char*> pointers;
};

}  // namespace

std::optional<std::string> find_variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::vector<std::string> current_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  return variables;
}

std::vector<std::string> changed_environment(const std::vector<std::string>& base,
                                             const std::map<std::string, std::string>& changes) {
  std::vector<std::string> variables;
  variables.reserve(base.size() + changes.size());
  for (const std::string& variable : base) {
    const auto equals = variable.find('=');
    if (equals != std::string::npos && !changes.contains(variable.substr(0, equals))) variables.push_back(variable);
  }
  for (const auto& [name, value] : changes) {
    std::string& variable = variables.emplace_back(name);
    variable += '=';
    variable += value;
  }
  return variables;
}

void replace_environment(const std::vector<std::string>& base, const std::map<std::string, std::string>& changes) {
  static auto& kept = *new std::list<Storage>;
  Storage& storage = kept.emplace_back();
  storage.variables = changed_environment(base, changes);
  for (std::string& variable : storage.variables) storage.pointers.push_back(variable.data());
  storage.pointers.push_back(nullptr);
  environ = storage.pointers.data();
}

}  // namespace retinue
