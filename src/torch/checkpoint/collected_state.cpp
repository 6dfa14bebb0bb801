#include "torch/checkpoint/collected_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/util/StringUtil.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <mutex>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "retinue/base/error.h"
#include "torch/checkpoint/optimizer_kind.h"
#include "torch/groups/failure.h"

namespace retinue {
namespace {

/// Those for which Python has a storage class, which its loader looks for.
bool has_storage_class(at::ScalarType type) {
  switch (type) {
    case at::kByte:
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong:
    case at::kHalf:
    case at::kFloat:
    case at::kDouble:
    case at::kComplexFloat:
    case at::kComplexDouble:
    case at::kBool:
    case at::kBFloat16:
      return true;
    default:
      return false;
  }
}

void check_can_be_saved(const std::string& name, const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided)
    throw UsageError(c10::str(name, " has the layout ", tensor.layout(), "; only dense tensors can be saved"));
  if (tensor.is_meta()) throw UsageError(c10::str(name, " is on the device meta, and has no elements to save"));
  if (!has_storage_class(tensor.scalar_type()))
    throw UsageError(c10::str(name, " has the type ", c10::toString(tensor.scalar_type()),
                              ", which torch.load() can't read; convert it, or save it in another way"));
}

class Collection {
 public:
  explicit Collection(int rank) : rank_(rank) {}

  std::uint64_t add(std::string name, const at::Tensor& tensor, Spread spread) {
    check_can_be_saved(name, tensor);
    state.manifest.tensors.push_back({.name = std::move(name),
                                      .type = static_cast<std::int8_t>(tensor.scalar_type()),
                                      .sizes = tensor.sizes().vec(),
                                      .spread = spread});
    state.sources.push_back({.tensor = tensor});
    return state.sources.size() - 1;
  }
  /// A slice of a tensor of the shape `whole`.
  std::uint64_t add_slice(std::string name, const at::Tensor& tensor, at::IntArrayRef whole,
                          const ParameterSlice& slice) {
    if (tensor.numel() != slice.end - slice.begin)
      throw UsageError(c10::str(name, " has ", tensor.numel(), " elements, but is said to be [", slice.begin, ", ",
                                slice.end, ") of the parameter's"));
    const std::uint64_t index = add(std::move(name), tensor, Spread::kSlices);
    SavedTensor& saved = state.manifest.tensors[index];
    saved.sizes = whole.vec();
    saved.slices = {{.rank = rank_, .begin = slice.begin, .end = slice.end}};
    state.sources[index].begin = slice.begin;
    return index;
  }

  CollectedState state;

 private:
  int rank_;
};

void collect_model(Collection& all, const torch::nn::Module& module) {
  std::unordered_map<const c10::TensorImpl*, std::uint64_t> known;  // Names may share a tensor.
  auto& model = all.state.manifest.model.emplace();
  for (const ModelTensor& item : model_tensors(module)) {
    auto place = known.find(item.tensor.unsafeGetTensorImpl());
    if (place == known.end()) {
      const Spread spread = item.is_buffer ? Spread::kRoot : Spread::kDivided;
      const std::uint64_t index = all.add(name_in_model(item.name), item.tensor.detach(), spread);
      place = known.emplace(item.tensor.unsafeGetTensorImpl(), index).first;
    }
    model.emplace_back(item.name, place->second);
  }
}

std::vector<SavedOption> collect_options(const OptimizerKind& kind, torch::optim::OptimizerOptions& options) {
  std::vector<SavedOption> saved;
  kind.visit_options(options, [&](const char* name, OptimizerKind::Option value) {
    if (const auto* const number = std::get_if<double*>(&value))
      saved.push_back({.name = name, .first = **number});
    else if (const auto* const flag = std::get_if<bool*>(&value))
      saved.push_back({.name = name, .kind = SavedOption::Kind::kBool, .first = **flag ? 1.0 : 0.0});
    else if (const auto* const pair = std::get_if<OptimizerKind::Betas*>(&value))
      saved.push_back({.name = name,
                       .kind = SavedOption::Kind::kPair,
                       .first = std::get<0>(**pair),
                       .second = std::get<1>(**pair)});
  });
  return saved;
}

/// The state that `optimizer` has of the parameters, which are those of `whole`, or slices of them.
class OptimizerCollection {
 public:
  OptimizerCollection(Collection& all, const OptimizerKind& kind, torch::optim::Optimizer& whole)
      : all_(all), kind_(kind), saved_(all.state.manifest.optimizer.emplace()) {
    saved_.type = kind.name;
    for (torch::optim::OptimizerParamGroup& group : whole.param_groups()) {
      saved_.groups.push_back(
          {.options = collect_options(kind, group.options()), .parameter_count = group.params().size()});
      parameters_.insert(parameters_.end(), group.params().begin(), group.params().end());
    }
  }

  const std::vector<at::Tensor>& parameters() const { return parameters_; }

  void add(torch::optim::Optimizer& optimizer, const at::Tensor& parameter, const ParameterSlice& slice,
           bool is_whole) {
    const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (state == optimizer.state().end()) return;
    SavedParameterState saved{.parameter = slice.parameter, .fields = {}};
    kind_.visit_state(*state->second, [&](const char* name, OptimizerKind::Field value) {
      SavedField field{.name = name};
      if (const auto* const count = std::get_if<std::int64_t*>(&value)) {
        field.count = **count;
      } else {
        const at::Tensor& tensor = *std::get<at::Tensor*>(value);
        if (!tensor.defined()) return;
        std::string full_name = name_in_optimizer(slice.parameter, name);
        field.tensor =
            static_cast<std::int64_t>(is_whole ? all_.add(std::move(full_name), tensor.detach(), Spread::kDivided)
                                               : all_.add_slice(std::move(full_name), tensor.detach(),
                                                                parameters_.at(slice.parameter).sizes(), slice));
      }
      saved.fields.push_back(std::move(field));
    });
    saved_.states.push_back(std::move(saved));
  }

 private:
  Collection& all_;
  const OptimizerKind& kind_;
  SavedOptimizer& saved_;
  std::vector<at::Tensor> parameters_;
};

void collect_slices(Collection& all, torch::optim::Optimizer& whole, ShardedState& shards) {
  torch::optim::Optimizer& local = shards.local_optimizer();
  const OptimizerKind* const kind = kind_of(local);
  if (kind == nullptr)
    throw UsageError(c10::str("an optimizer of the class ", class_name_of(local),
                              " can't be saved in slices; SGD, Adam, AdamW, RMSprop and Adagrad can"));
  OptimizerCollection optimizer(all, *kind, whole);
  const std::vector<ParameterSlice> slices = shards.slices();
  std::size_t next = 0;
  for (const torch::optim::OptimizerParamGroup& group : local.param_groups())
    for (const at::Tensor& parameter : group.params()) {
      if (next == slices.size())
        throw UsageError(c10::str("the optimizer names ", slices.size(), " slices, but its part has more parameters"));
      optimizer.add(local, parameter, slices[next++], /*is_whole=*/false);
    }
}

void collect_archive(Collection& all, const torch::optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  std::ostringstream stream;
  if (const Failure failure = failure_of([&] {
        optimizer.save(archive);
        archive.save_to(stream);
      }))
    throw UsageError(c10::str(class_name_of(optimizer), "'s save() failed: ", failure.text));
  SavedOptimizer& saved = all.state.manifest.optimizer.emplace();
  saved.type = class_name_of(optimizer);
  saved.archive = std::move(stream).str();
  std::istringstream written(saved.archive);
  torch::serialize::InputArchive read;
  read.load_from(written);
  if (read.keys().empty())
    throw UsageError(c10::str("an optimizer of the class ", saved.type,
                              " can't be saved: it is none of SGD, Adam, AdamW, RMSprop and Adagrad, and has no save() "
                              "and load() of its own"));
}

void collect_optimizer(Collection& all, torch::optim::Optimizer& optimizer) {
  if (auto* const shards = dynamic_cast<ShardedState*>(&optimizer)) return collect_slices(all, optimizer, *shards);
  const OptimizerKind* const kind = kind_of(optimizer);
  if (kind == nullptr) return collect_archive(all, optimizer);
  OptimizerCollection collection(all, *kind, optimizer);
  for (std::size_t i = 0; i < collection.parameters().size(); ++i)
    collection.add(optimizer, collection.parameters()[i], {.parameter = i}, /*is_whole=*/true);
}

std::vector<SavedGenerator> collect_generators(const CheckpointState& state) {
  std::vector<SavedGenerator> saved;
  for (at::Generator& generator : random_generators(state)) {
    const std::lock_guard lock(generator.mutex());
    const at::Tensor bytes = generator.get_state();
    saved.push_back({.device = c10::DeviceTypeName(generator.device().type(), /*lower_case=*/true),
                     .state = {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()}});
  }
  return saved;
}

}  // namespace

std::string name_in_model(const std::string& name) {
  return c10::str("model[\"", name, "\"]");
}

std::string name_in_optimizer(std::uint64_t parameter, const std::string& field) {
  return c10::str("optimizer[\"state\"][", parameter, "][\"", field, "\"]");
}

std::vector<ModelTensor> model_tensors(const torch::nn::Module& module) {
  std::vector<ModelTensor> all;
  for (const auto& item : module.named_parameters())
    if (item.value().defined()) all.push_back({item.key(), item.value()});
  for (const auto& item : module.named_buffers())
    if (item.value().defined()) all.push_back({item.key(), item.value(), /*is_buffer=*/true});
  return all;
}

std::vector<at::Generator> random_generators(const CheckpointState& state) {
  if (!state.random_generators) return {};
  std::vector<at::Generator> generators = {at::detail::getDefaultCPUGenerator()};
  if (state.model.get() != nullptr)
    for (const ModelTensor& item : model_tensors(*state.model.get()))
      if (item.tensor.is_cuda()) {
        generators.push_back(at::globalContext().defaultGenerator(item.tensor.device()));
        break;
      }
  return generators;
}

void CollectedState::rearrange(const Manifest& merged) {
  std::unordered_map<std::string, TensorSource> by_name;
  for (std::size_t i = 0; i < sources.size(); ++i) by_name.emplace(manifest.tensors[i].name, std::move(sources[i]));
  sources.clear();
  for (const SavedTensor& tensor : merged.tensors) sources.push_back(std::move(by_name[tensor.name]));
  manifest = merged;
}

CollectedState collect(std::int64_t step, const ProcessGroup& group, const CheckpointState& state) {
  if (step < 0) throw UsageError(c10::str("a step must be at least 0"));
  Collection all(group->getRank());
  all.state.manifest.step = step;
  all.state.manifest.world_size = group->getSize();
  if (state.model.get() != nullptr) collect_model(all, *state.model.get());
  if (state.optimizer.get() != nullptr) collect_optimizer(all, *state.optimizer.get());
  if (state.sampler.get() != nullptr) all.state.manifest.sampler = state.sampler.get()->state(state.consumed);
  all.state.manifest.generators = {collect_generators(state)};
  return std::move(all.state);
}

}  // namespace retinue
