#pragma once

#include <string>
#include <utility>

#include "retinue/base/error.h"

namespace retinue::detail {

/// An exception of another language that a rank's function ran. Reports show its type and stack as that language does.
class ForeignError : public Error {
 public:
  /// `stack` is text, one frame per line.
  ForeignError(std::string type, const std::string& message, std::string stack)
      : Error(message), type_(std::move(type)), stack_(std::move(stack)) {}

  const std::string& type() const noexcept { return type_; }
  const std::string& stack() const noexcept { return stack_; }

 private:
  std::string type_;
  std::string stack_;
};

}  // namespace retinue::detail
