#pragma once

#include <string>
#include <typeinfo>

namespace retinue {

/// What was thrown last on this thread: for destructors, which see that an exception passes, and not which. A watch is
/// to be destroyed by the thread that made it. Cost: of a throw meanwhile, a copy of its text; else, one load.
class ThrownText {
 public:
  ThrownText();
  ~ThrownText();
  ThrownText(const ThrownText&) = delete;
  ThrownText& operator=(const ThrownText&) = delete;

  /// As "std::runtime_error: no space left"; empty where nothing was thrown since, or where throws are not seen: see
  /// throw_trace.h.
  std::string last() const;

  /// To be told of each throw.
  static void note(void* object, const std::type_info* type) noexcept;

 private:
  const void* thread_;
};

}  // namespace retinue
