#include "os/process/process_stat.h"

#include <charconv>
#include <fstream>
#include <sstream>
#include <system_error>

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

namespace {

std::string text_of_file(const std::string& path) {
  std::string text;
  std::getline(std::ifstream(path), text, '\0');
  return text;
}

}  // namespace

ProcessStatus::ProcessStatus() : text_(text_of_file("/proc/thread-self/status")) {}
ProcessStatus::ProcessStatus(pid_t pid) : text_(text_of_file("/proc/" + std::to_string(pid) + "/status")) {}

std::string_view ProcessStatus::line(std::string_view name) const {
  const std::string head = std::string("\n").append(name).append(":");
  const std::size_t at = text_.find(head);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + head.size();
  return std::string_view(text_).substr(begin, text_.find('\n', begin) - begin);
}

std::vector<std::uint64_t> ProcessStatus::numbers(std::string_view name, int base) const {
  std::vector<std::uint64_t> numbers;
  const std::string_view text = line(name);
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    std::uint64_t number = 0;
    const auto [after, error] = std::from_chars(at, end, number, base);
    if (error == std::errc()) numbers.push_back(number);
    at = error == std::errc() ? after : at + 1;
  }
  return numbers;
}

std::uint64_t ProcessStatus::number(std::string_view name, int base) const {
  const auto found = numbers(name, base);
  return found.empty() ? 0 : found.front();
}

}  // namespace retinue
