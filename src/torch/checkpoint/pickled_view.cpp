#include "torch/checkpoint/pickled_view.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace retinue {
namespace {

using c10::IValue;
using c10::impl::GenericDict;
using c10::impl::GenericList;

GenericDict make_dict() {
  return GenericDict(c10::StringType::get(), c10::AnyType::get());
}

/// A tensor of which only the description is written: it has no memory.
at::Tensor described(const SavedTensor& saved) {
  const c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<std::int64_t>(saved.bytes()),
                             c10::DataPtr(nullptr, c10::Device(c10::kCPU)), /*allocator=*/nullptr,
                             /*resizable=*/false);
  at::Tensor tensor = at::empty({0}, at::TensorOptions().dtype(saved.scalar_type()));
  std::vector<std::int64_t> strides(saved.sizes.size());
  std::int64_t stride = 1;
  for (std::size_t i = strides.size(); i-- > 0; stride *= std::max<std::int64_t>(saved.sizes[i], 1))
    strides[i] = stride;
  tensor.set_(storage, 0, saved.sizes, strides);
  return tensor;
}

at::Tensor bytes_tensor(const std::string& bytes) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

/// A counter as Python's optimizers have it: a float, or a double where a float is too short.
at::Tensor count_tensor(std::int64_t count) {
  const bool is_exact = static_cast<std::int64_t>(static_cast<float>(count)) == count;
  return at::empty({}, is_exact ? at::kFloat : at::kDouble).fill_(count);
}

IValue option_value(const SavedOption& option) {
  switch (option.kind) {
    case SavedOption::Kind::kBool:
      return option.first != 0;
    case SavedOption::Kind::kPair:
      return c10::ivalue::Tuple::create({IValue(option.first), IValue(option.second)});
    default:
      return option.first;
  }
}

class View {
 public:
  explicit View(const Manifest& manifest) : manifest_(manifest) {
    for (const SavedTensor& tensor : manifest.tensors) tensors_.push_back(described(tensor));
  }

  GenericDict make() const {
    GenericDict all = make_dict();
    all.insert("step", manifest_.step);
    all.insert("world_size", static_cast<std::int64_t>(manifest_.world_size));
    if (manifest_.model) {
      GenericDict model = make_dict();
      for (const auto& [name, index] : *manifest_.model) model.insert(name, tensors_.at(index));
      all.insert("model", model);
    }
    if (manifest_.optimizer) all.insert("optimizer", optimizer(*manifest_.optimizer));
    if (manifest_.sampler) {
      GenericDict sampler = make_dict();
      sampler.insert("epoch", manifest_.sampler->epoch);
      sampler.insert("consumed", static_cast<std::int64_t>(manifest_.sampler->consumed));
      all.insert("sampler", sampler);
    }
    GenericList ranks(c10::AnyType::get());
    for (const std::vector<SavedGenerator>& generators : manifest_.generators) {
      GenericDict rank = make_dict();
      for (const SavedGenerator& generator : generators) rank.insert(generator.device, bytes_tensor(generator.state));
      ranks.push_back(rank);
    }
    all.insert("random_generators", ranks);
    return all;
  }

  const std::vector<at::Tensor>& tensors() const { return tensors_; }

 private:
  GenericDict optimizer(const SavedOptimizer& saved) const {
    GenericDict optimizer = make_dict();
    if (!saved.archive.empty()) {
      optimizer.insert("class", saved.type);
      optimizer.insert("archive", bytes_tensor(saved.archive));
      return optimizer;
    }
    GenericDict states(c10::IntType::get(), c10::AnyType::get());
    for (const SavedParameterState& saved_state : saved.states) {
      GenericDict state = make_dict();
      for (const SavedField& field : saved_state.fields)
        state.insert(field.name, field.tensor == SavedField::kNoTensor
                                     ? count_tensor(field.count)
                                     : tensors_.at(static_cast<std::size_t>(field.tensor)));
      states.insert(static_cast<std::int64_t>(saved_state.parameter), state);
    }
    optimizer.insert("state", states);
    optimizer.insert("param_groups", groups(saved));
    return optimizer;
  }

  static GenericList groups(const SavedOptimizer& saved) {
    GenericList groups(c10::AnyType::get());
    std::int64_t next = 0;
    for (const SavedGroup& saved_group : saved.groups) {
      GenericDict group = make_dict();
      for (const SavedOption& option : saved_group.options) group.insert(option.name, option_value(option));
      // Python's AdamW is its Adam with this option, which it would set to false if it were missing.
      if (saved.type == "AdamW") group.insert("decoupled_weight_decay", true);
      GenericList params(c10::AnyType::get());
      for (std::uint64_t i = 0; i < saved_group.parameter_count; ++i) params.push_back(next++);
      group.insert("params", params);
      groups.push_back(group);
    }
    return groups;
  }

  const Manifest& manifest_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace

PickledView make_pickled_view(const Manifest& manifest) {
  const View view(manifest);
  std::unordered_map<const void*, std::size_t> ids;
  for (std::size_t i = 0; i < view.tensors().size(); ++i) ids[view.tensors()[i].unsafeGetTensorImpl()] = i;
  PickledView made;
  const auto id_of = [&](const at::Tensor& tensor) {
    const auto [place, is_new] = ids.emplace(tensor.unsafeGetTensorImpl(), manifest.tensors.size() + made.small.size());
    if (is_new) made.small.push_back(tensor);
    return std::to_string(place->second);
  };
  torch::jit::Pickler pickler([&](const char* data, std::size_t bytes) { made.pickle.append(data, bytes); },
                              /*tensor_table=*/nullptr, /*type_renamer=*/nullptr, /*memoized_class_types=*/nullptr,
                              id_of, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(view.make());
  pickler.stop();
  return made;
}

}  // namespace retinue
