#include "torch/checkpoint/manifest.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "retinue/base/error.h"
#include "torch/checkpoint/crc32.h"
#include "torch/checkpoint/index_archive.h"

namespace retinue {
namespace {

constexpr const char* kSignature = "retinue checkpoint";
constexpr std::uint32_t kFormat = 1;
constexpr std::size_t kCrcBytes = 4;

template <class Value>
std::string encode(const Value& value) {
  IndexOutput output;
  output(value);
  return output.bytes();
}

std::string crc_bytes(const std::string& bytes) {
  const std::uint32_t crc = crc32(bytes.data(), bytes.size());
  std::string text;
  for (std::size_t i = 0; i < kCrcBytes; ++i) text += static_cast<char>(crc >> 8 * i & 0xff);
  return text;
}

bool has_tensor(const SavedField& field) {
  return field.tensor != SavedField::kNoTensor;
}

std::string description(const SavedTensor& tensor) {
  return c10::str(tensor.name, " of type ", c10::toString(tensor.scalar_type()), " and shape ", tensor.shape_text());
}

[[noreturn]] void throw_difference(int rank, const std::string& first, const std::string& other) {
  throw Error(
      c10::str("the ranks have different things to save: rank 0 has ", first, ", but rank ", rank, " has ", other));
}

/// Of a rank's manifest into the merged one, whose tensors and states are in `places_`.
class Merge {
 public:
  explicit Merge(Manifest first) : whole_(std::move(first)) {
    for (std::size_t i = 0; i < whole_.tensors.size(); ++i) places_[whole_.tensors[i].name] = i;
  }

  void add(const Manifest& other, int rank) {
    check_same(other, rank);
    for (const SavedTensor& tensor : other.tensors) add(tensor, rank);
    if (!other.optimizer) return;
    for (const SavedParameterState& state : other.optimizer->states) add(state, other);
  }

  Manifest take() {
    for (SavedTensor& tensor : whole_.tensors)
      if (tensor.spread == Spread::kSlices) check_coverage(tensor);
    if (whole_.optimizer)
      std::ranges::sort(whole_.optimizer->states, {}, [](const SavedParameterState& state) { return state.parameter; });
    return std::move(whole_);
  }

 private:
  void check_same(const Manifest& other, int rank) const {
    if (whole_.step != other.step)
      throw_difference(rank, c10::str("step ", whole_.step), c10::str("step ", other.step));
    const auto parts = [](const Manifest& manifest) {
      return c10::str(manifest.model ? "a model" : "no model", ", ",
                      manifest.optimizer ? "an optimizer of type " + manifest.optimizer->type : "no optimizer",
                      manifest.sampler ? " and a sampler" : " and no sampler");
    };
    if (parts(whole_) != parts(other)) throw_difference(rank, parts(whole_), parts(other));
    if (whole_.model && whole_.model->size() != other.model->size())
      throw_difference(rank, c10::str(whole_.model->size(), " parameters and buffers"), c10::str(other.model->size()));
    if (whole_.optimizer) check_same_groups(*whole_.optimizer, *other.optimizer, rank);
  }

  static void check_same_groups(const SavedOptimizer& first, const SavedOptimizer& other, int rank) {
    const auto text = [](const SavedOptimizer& optimizer) {
      std::string all = "the optimizer's";
      for (const SavedGroup& group : optimizer.groups) {
        all += c10::str(" group of ", group.parameter_count, " parameters");
        for (const SavedOption& option : group.options)
          all += c10::str(" ", option.name, "=", option.first,
                          option.kind == SavedOption::Kind::kPair ? c10::str(",", option.second) : "");
      }
      return all;
    };
    const auto is_same = [](const SavedGroup& one, const SavedGroup& two) {
      return one.options == two.options && one.parameter_count == two.parameter_count;
    };
    if (!std::ranges::equal(first.groups, other.groups, is_same)) throw_difference(rank, text(first), text(other));
  }

  void add(const SavedTensor& tensor, int rank) {
    const auto [place, is_new] = places_.emplace(tensor.name, whole_.tensors.size());
    if (is_new) {
      if (tensor.spread != Spread::kSlices) throw_difference(rank, "no " + tensor.name, "one");
      whole_.tensors.push_back(tensor);
      return;
    }
    SavedTensor& known = whole_.tensors[place->second];
    if (description(known) != description(tensor) || known.spread != tensor.spread)
      throw_difference(rank, description(known), description(tensor));
    known.slices.insert(known.slices.end(), tensor.slices.begin(), tensor.slices.end());
  }

  void add(const SavedParameterState& state, const Manifest& of_rank) {
    std::vector<SavedParameterState>& states = whole_.optimizer->states;
    auto known = std::ranges::find(states, state.parameter, &SavedParameterState::parameter);
    if (known == states.end()) known = states.insert(states.end(), {.parameter = state.parameter, .fields = {}});
    for (SavedField field : state.fields) {
      if (has_tensor(field))
        field.tensor =
            static_cast<std::int64_t>(places_.at(of_rank.tensors.at(static_cast<std::size_t>(field.tensor)).name));
      if (std::ranges::find(known->fields, field.name, &SavedField::name) == known->fields.end())
        known->fields.push_back(std::move(field));
    }
  }

  static void check_coverage(SavedTensor& tensor) {
    std::ranges::sort(tensor.slices, {}, &SavedSlice::begin);
    std::int64_t end = 0;
    for (const SavedSlice& slice : tensor.slices) {
      if (slice.begin != end)
        throw Error(c10::str("the ranks' slices of ", tensor.name, slice.begin < end ? " overlap at" : " lack",
                             " element ", std::min(slice.begin, end)));
      end = slice.end;
    }
    if (static_cast<std::uint64_t>(end) != tensor.element_count())
      throw Error(
          c10::str("the ranks' slices of ", tensor.name, " end at element ", end, " of ", tensor.element_count()));
  }

  Manifest whole_;
  std::unordered_map<std::string, std::size_t> places_;
};

}  // namespace

std::uint64_t SavedTensor::element_count() const {
  std::uint64_t count = 1;
  for (const std::int64_t size : sizes) count *= static_cast<std::uint64_t>(size);
  return count;
}

std::string SavedTensor::shape_text() const {
  return c10::str(at::IntArrayRef(sizes));
}

bool Manifest::has_slices() const {
  return std::ranges::any_of(tensors, [](const SavedTensor& tensor) { return tensor.spread == Spread::kSlices; });
}

std::string encode_manifest(const Manifest& manifest) {
  return encode(manifest);
}

Manifest decode_manifest(const std::string& bytes) {
  Manifest manifest;
  IndexInput input(bytes);
  input(manifest);
  return manifest;
}

std::string encode_index(const CheckpointIndex& index) {
  std::string bytes = encode(std::pair(std::string(kSignature), kFormat)) + encode(index);
  return bytes + crc_bytes(bytes);
}

CheckpointIndex decode_index(const std::string& bytes) {
  const std::size_t size = std::max(bytes.size(), kCrcBytes) - kCrcBytes;
  if (bytes.substr(size) != crc_bytes(bytes.substr(0, size))) throw Error("its index is damaged");
  IndexInput input(std::string_view(bytes).substr(0, size));
  std::pair<std::string, std::uint32_t> head;
  input(head);
  if (head.first != kSignature) throw Error("its index is another program's");
  if (head.second != kFormat)
    throw Error(c10::str("it has format ", head.second, ", but this version of Retinue reads format ", kFormat));
  CheckpointIndex index;
  input(index);
  return index;
}

Manifest merge_manifests(std::vector<Manifest> of_ranks) {
  Merge merge(std::move(of_ranks.front()));
  for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) merge.add(of_ranks[rank], static_cast<int>(rank));
  return merge.take();
}

}  // namespace retinue
