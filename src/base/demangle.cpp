#include "base/demangle.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string_view>

namespace retinue {
namespace {

/// Behind the argument of a template that begins at `begin`.
std::size_t end_of_argument(std::string_view name, std::size_t begin) {
  int depth = 0;
  for (std::size_t at = begin; at < name.size(); ++at) {
    if (name[at] == '<' || name[at] == '(') ++depth;
    if (name[at] == '>' || name[at] == ')') --depth;
    if (depth < 0 || (depth == 0 && name[at] == ',')) return at;
  }
  return name.size();
}

void replace_all(std::string& text, std::string_view old, std::string_view by) {
  for (std::size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += by.size())
    text.replace(at, old.size(), by);
}

}  // namespace

std::string demangled(const char* name) {
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, nullptr),
                                                         &std::free);
  return text ? text.get() : name;
}

std::string type_name(const char* mangled) {
  std::string name = demangled(mangled);
  replace_all(name, "std::__cxx11::", "std::");
  replace_all(name, "std::basic_string<char, std::char_traits<char>, std::allocator<char> >", "std::string");
  constexpr std::string_view kAllocator = ", std::allocator<";
  for (std::size_t at = 0; (at = name.find(kAllocator, at)) != std::string::npos;)
    name.erase(at, end_of_argument(name, at + 1) - at);
  replace_all(name, " >", ">");
  return name;
}

}  // namespace retinue
