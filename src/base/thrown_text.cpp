#include "base/thrown_text.h"

#include <cstring>
#include <exception>
#include <string_view>

#include "base/char_field.h"
#include "base/demangle.h"

namespace retinue {
namespace {

struct LastThrow {
  int watches = 0;
  const std::type_info* type = nullptr;
  char text[512] = {};

  void forget() {
    type = nullptr;
    std::memset(text, 0, sizeof text);
  }
};

thread_local LastThrow last_throw;

}  // namespace

ThrownText::ThrownText() : thread_(&last_throw) {
  ++last_throw.watches;
  last_throw.forget();
}

ThrownText::~ThrownText() {
  if (thread_ == &last_throw) --last_throw.watches;
}

std::string ThrownText::last() const {
  if (thread_ != &last_throw || last_throw.type == nullptr) return {};
  const std::string text = text_of(last_throw.text);
  return demangled(last_throw.type->name()) + (text.empty() ? "" : ": " + text);
}

void ThrownText::note(void* object, const std::type_info* type) noexcept {
  if (last_throw.watches == 0) return;
  // As a handler of std::exception would find it (the C++ runtime's ABI).
  void* caught = object;
  const bool has_text = typeid(std::exception).__do_catch(type, &caught, 1);
  const char* text =
      has_text ? static_cast<const std::exception*>(caught)->what() : nullptr;  // Which may throw inside.
  last_throw.forget();
  last_throw.type = type;
  if (text != nullptr) fill(last_throw.text, text);
}

}  // namespace retinue
