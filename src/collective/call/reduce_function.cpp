#include "retinue/collective/reduce_function.h"

#include <fmt/format.h>

#include <algorithm>

#include "os/process/loaded_objects.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// As "mod::multiply" of "const ReduceFunction& reduce_function() [with auto fn = mod::multiply; T = mod::Matrix]".
std::string function_name(std::string_view type) {
  constexpr std::string_view kBefore = "fn = ";
  const std::size_t begin = type.find(kBefore);
  if (begin == std::string_view::npos) return std::string(type);
  std::string_view name = type.substr(begin + kBefore.size());
  const std::size_t end = std::min({name.find("; T = "), name.find(", T = "), name.rfind(']')});
  name = name.substr(0, end);
  if (name.starts_with('&')) name.remove_prefix(1);
  return std::string(name);
}

/// Build-ids are hashes already: what is left of one tells binaries of one job apart.
std::uint64_t folded(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const char byte : text) value = (value ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return value;
}

}  // namespace

ReduceFunction::ReduceFunction(Kernel kernel, std::size_t element_bytes, std::string_view type)
    : kernel_(kernel), element_bytes_(element_bytes), name_(function_name(type)) {
  const auto place = place_of_code(reinterpret_cast<std::uintptr_t>(kernel));
  if (!place) throw UsageError(fmt::format("the reduction {} is not in a loaded executable or shared library", name_));
  object_ = folded(place->object_id);
  offset_ = place->offset;
}

}  // namespace retinue
