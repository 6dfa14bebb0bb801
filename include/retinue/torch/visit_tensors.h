#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

/// Calls a function with each tensor in what a module's forward returned. For a type of your own, declare an overload
/// `void visit_tensors(YourType&, auto&& visit)` in its namespace.
namespace retinue {

template <typename Visit>
void visit_tensors(at::Tensor& tensor, Visit&& visit) {
  visit(tensor);
}

template <typename T, typename Visit>
void visit_tensors(std::optional<T>& value, Visit&& visit);
template <typename T, typename Visit>
void visit_tensors(std::vector<T>& values, Visit&& visit);
template <typename T, std::size_t n, typename Visit>
void visit_tensors(std::array<T, n>& values, Visit&& visit);
template <typename A, typename B, typename Visit>
void visit_tensors(std::pair<A, B>& values, Visit&& visit);
template <typename... T, typename Visit>
void visit_tensors(std::tuple<T...>& values, Visit&& visit);

/// Whether visit_tensors can look into a T.
template <typename T>
concept VisitableTensors = requires(T& value) {
  visit_tensors(value, [](at::Tensor&) {});
};

template <typename T, typename Visit>
void visit_tensors(std::optional<T>& value, Visit&& visit) {
  if (value) visit_tensors(*value, visit);
}

template <typename T, typename Visit>
void visit_tensors(std::vector<T>& values, Visit&& visit) {
  for (T& value : values) visit_tensors(value, visit);
}

template <typename T, std::size_t n, typename Visit>
void visit_tensors(std::array<T, n>& values, Visit&& visit) {
  for (T& value : values) visit_tensors(value, visit);
}

template <typename A, typename B, typename Visit>
void visit_tensors(std::pair<A, B>& values, Visit&& visit) {
  visit_tensors(values.first, visit);
  visit_tensors(values.second, visit);
}

template <typename... T, typename Visit>
void visit_tensors(std::tuple<T...>& values, Visit&& visit) {
  std::apply([&](auto&... value) { (visit_tensors(value, visit), ...); }, values);
}

}  // namespace retinue
