#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <functional>
#include <optional>
#include <type_traits>

/// Which values are sent between processes as they are in memory. Not used directly.
namespace retinue::detail {

/// Whether T only refers to its elements, as string_view, span and c10::ArrayRef do: it returns the same pointer
/// whether or not it is const.
template <class T>
concept View = requires(T& view, const T& constant) {
  view.size();
  requires std::is_pointer_v<decltype(view.data())>;
  requires std::same_as<decltype(view.data()), decltype(constant.data())>;
};

/// Whether T refers to memory that another process doesn't have. It can't see pointers that are members of a user's
/// class.
template <class T>
constexpr bool kPointsElsewhere = std::is_pointer_v<T> || std::is_member_pointer_v<T> || View<T>;
template <class T>
constexpr bool kPointsElsewhere<std::reference_wrapper<T>> = true;
template <class T>
constexpr bool kPointsElsewhere<std::optional<T>> = kPointsElsewhere<T>;
template <class T, std::size_t size>
constexpr bool kPointsElsewhere<std::array<T, size>> = kPointsElsewhere<T>;

/// Whether T is sent as it is. bool isn't, because bytes other than 0 and 1 would be undefined.
template <class T>
constexpr bool kIsPlain = std::is_trivially_copyable_v<T> && !kPointsElsewhere<T> && !std::is_same_v<T, bool>;

}  // namespace retinue::detail
