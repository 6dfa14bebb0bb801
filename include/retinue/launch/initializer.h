#pragma once

#include <optional>
#include <utility>

#include "retinue/launch/detail/entry.h"

namespace retinue {

/// A function that each worker of a Pool runs before its first task. initializer<fn>(arguments...) makes one.
class Initializer {
 public:
  Initializer() = default;
  Initializer(detail::EntryKey entry, detail::Encoded arguments)
      : entry_(std::move(entry)), arguments_(std::move(arguments)) {}

  const std::optional<detail::EntryKey>& entry() const noexcept { return entry_; }
  const detail::Encoded& arguments() const noexcept { return arguments_; }

 private:
  std::optional<detail::EntryKey> entry_;
  detail::Encoded arguments_;
};

template <auto fn, class... Arguments>
Initializer initializer(Arguments&&... arguments) {
  return {detail::entry_key<fn, detail::EntryStyle::kProcess>(),
          detail::encode<fn, detail::EntryStyle::kProcess>(std::forward<Arguments>(arguments)...)};
}

}  // namespace retinue
