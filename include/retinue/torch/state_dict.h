#pragma once

#include <torch/nn/module.h>
#include <torch/ordered_dict.h>

#include <cereal/types/string.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace retinue {

/// Tensors by name, in order: a module's parameters and buffers, as Python's state_dict() gives them. It may be an
/// argument, a return value or a message, with retinue/torch/tensor_archive.h.
class StateDict {
 public:
  using Entries = torch::OrderedDict<std::string, at::Tensor>;

  /// Errors: c10::Error for a name that is there.
  void insert(std::string name, at::Tensor tensor) { entries_.insert(std::move(name), std::move(tensor)); }
  /// Null if there is none of that name.
  const at::Tensor* find(const std::string& name) const { return entries_.find(name); }
  bool contains(const std::string& name) const { return entries_.contains(name); }
  /// Errors: c10::Error if there is none of that name.
  const at::Tensor& operator[](const std::string& name) const { return entries_[name]; }
  std::vector<std::string> keys() const { return entries_.keys(); }
  std::size_t size() const { return entries_.size(); }

  /// Over items with key() and value().
  Entries::ConstIterator begin() const { return entries_.begin(); }
  Entries::ConstIterator end() const { return entries_.end(); }

  template <class Archive>
  void save(Archive& archive) const {
    archive(static_cast<std::uint64_t>(size()));
    for (const auto& entry : entries_) archive(entry.key(), entry.value());
  }
  template <class Archive>
  void load(Archive& archive) {
    std::uint64_t count = 0;
    archive(count);
    entries_.clear();
    for (std::uint64_t i = 0; i < count; ++i) {
      std::string name;
      at::Tensor tensor;
      archive(name, tensor);
      insert(std::move(name), std::move(tensor));
    }
  }

 private:
  Entries entries_;
};

/// The module's own tensors, detached: they change when it trains. Clone what shall stay as it is now.
StateDict state_dict(const torch::nn::Module& module);

/// Copies the values into the module's parameters and buffers, in place.
/// Errors: UsageError, which names all that is missing, unexpected or of another shape, before anything is changed.
void load_state_dict(torch::nn::Module& module, const StateDict& dict);

}  // namespace retinue
