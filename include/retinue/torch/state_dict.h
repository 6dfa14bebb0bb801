#pragma once

#include <torch/nn/module.h>
#include <torch/ordered_dict.h>

#include <cereal/types/string.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace retinue {

/// An ordered map of named tensors: a module's parameters and buffers, as Python's state_dict() returns them. It may be
/// an argument, a return value or a message, with retinue/torch/tensor_archive.h.
class StateDict {
 public:
  using Entries = torch::OrderedDict<std::string, at::Tensor>;

  /// Inserts a tensor. Errors: c10::Error if the name exists.
  void insert(std::string name, at::Tensor tensor) { entries_.insert(std::move(name), std::move(tensor)); }
  /// Returns the tensor of that name; null if there is none.
  const at::Tensor* find(const std::string& name) const { return entries_.find(name); }
  bool contains(const std::string& name) const { return entries_.contains(name); }
  /// Returns the tensor of that name. Errors: c10::Error if there is none.
  const at::Tensor& operator[](const std::string& name) const { return entries_[name]; }
  std::vector<std::string> keys() const { return entries_.keys(); }
  std::size_t size() const { return entries_.size(); }

  /// Iterates over items with key() and value().
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

/// Returns the module's own tensors, detached: they change when it trains. Clone those that must keep their values.
StateDict state_dict(const torch::nn::Module& module);

/// Copies the values into the module's parameters and buffers, in place.
/// Errors: UsageError, which names all missing, unexpected and differently shaped entries, before anything is changed.
void load_state_dict(torch::nn::Module& module, const StateDict& dict);

}  // namespace retinue
