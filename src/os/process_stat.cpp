#include "os/process_stat.h"

#include <fstream>
#include <sstream>

namespace retinue {

std::vector<std::string> process_stat(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text, '\0');  // Names may hold line ends. It does not throw where the process goes meanwhile.
  const auto name_end = text.rfind(')');  // Brackets, too.
  if (name_end == std::string::npos) return {};
  std::istringstream rest(text.substr(name_end + 1));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

}  // namespace retinue
