#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <functional>
#include <optional>
#include <type_traits>

/// Which values travel between processes as they lie in memory. Not used directly.
namespace retinue::detail {

/// Whether T only says where its elements are, as string_view, span and c10::ArrayRef do: it gives the same pointer
/// whether or not it is const.
template <class T>
concept View = requires(T& view, const T& constant) {
  view.size();
  requires std::is_pointer_v<decltype(view.data())>;
  requires std::same_as<decltype(view.data()), decltype(constant.data())>;
};

/// Names memory that another process does not have. Pointers that are members of a user's class can't be seen.
template <class T>
constexpr bool kPointsElsewhere = std::is_pointer_v<T> || std::is_member_pointer_v<T> || View<T>;
template <class T>
constexpr bool kPointsElsewhere<std::reference_wrapper<T>> = true;
template <class T>
constexpr bool kPointsElsewhere<std::optional<T>> = kPointsElsewhere<T>;
template <class T, std::size_t size>
constexpr bool kPointsElsewhere<std::array<T, size>> = kPointsElsewhere<T>;

/// Not bool, of which other bytes than 0 and 1 would be undefined.
template <class T>
constexpr bool kIsPlain = std::is_trivially_copyable_v<T> && !kPointsElsewhere<T> && !std::is_same_v<T, bool>;

}  // namespace retinue::detail
