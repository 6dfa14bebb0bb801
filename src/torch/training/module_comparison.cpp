#include "torch/training/module_comparison.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_set>
#include <vector>

#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::int64_t kSame = INT64_MAX;

class Structure {
 public:
  Structure(const torch::nn::Module& module, const std::unordered_set<std::string>& ignored) {
    for (const auto& item : module.named_parameters())
      if (!ignored.contains(item.key())) add("parameter", item.key(), item.value());
    for (const auto& item : module.named_buffers())
      if (!ignored.contains(item.key())) add("buffer", item.key(), item.value());
  }
  explicit Structure(const std::string& text) {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\0', begin);
      lines_.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  std::string text() const {
    std::string all;
    for (const std::string& line : lines_) (all += line) += '\0';
    return all;
  }
  /// The place of the first line that differs.
  std::int64_t difference(const Structure& other) const {
    const auto [mine, others] = std::ranges::mismatch(lines_, other.lines_);
    return mine == lines_.end() && others == other.lines_.end() ? kSame : mine - lines_.begin();
  }
  std::string line(std::int64_t place) const {
    const auto index = static_cast<std::size_t>(place);
    return index < lines_.size() ? lines_[index] : c10::str("nothing after ", lines_.size(), " parameters and buffers");
  }

 private:
  void add(const char* kind, const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || !seen_.insert(tensor.unsafeGetTensorImpl()).second) return;
    std::string line =
        c10::str(kind, " \"", name, "\" of type ", c10::toString(tensor.scalar_type()), " and shape ", tensor.sizes());
    if (tensor.layout() == at::kStrided && !tensor.is_contiguous())
      line += c10::str(" with strides ", tensor.strides());
    if (!tensor.is_cpu()) line += c10::str(" on ", c10::DeviceTypeName(tensor.device().type(), /*lower_case=*/true));
    if (tensor.requires_grad()) line += ", which requires a gradient";
    lines_.push_back(std::move(line));
  }

  std::vector<std::string> lines_;
  std::unordered_set<const c10::TensorImpl*> seen_;
};

/// Rank `root`'s text on all ranks: broadcast_object() serves no groups of LibTorch's own backends, and this does.
std::string broadcast_text(std::string text, int root, const ProcessGroup& group, const std::source_location& where) {
  const at::Tensor bytes = at::empty({1}, at::kLong).fill_(static_cast<std::int64_t>(text.size()));
  broadcast(bytes, group, {.src = root}, where);
  const at::Tensor characters = at::zeros({bytes.item<std::int64_t>()}, at::kChar);
  if (group->getRank() == root) std::memcpy(characters.data_ptr(), text.data(), text.size());
  broadcast(characters, group, {.src = root}, where);
  return {static_cast<const char*>(characters.data_ptr()), static_cast<std::size_t>(characters.numel())};
}

}  // namespace

void check_same_structure(const torch::nn::Module& module, const std::unordered_set<std::string>& ignored,
                          const ProcessGroup& group, std::source_location where) {
  const Structure mine(module, ignored);
  const Structure first(broadcast_text(mine.text(), 0, group, where));
  const at::Tensor place = at::empty({1}, at::kLong).fill_(first.difference(mine));
  const at::Tensor places = at::empty({group->getSize()}, at::kLong);
  all_gather_into_tensor(places, place, group, {}, where);
  const auto* const of_ranks = places.const_data_ptr<std::int64_t>();
  const std::int64_t earliest = *std::min_element(of_ranks, of_ranks + places.numel());
  if (earliest == kSame) return;
  std::vector<int> differing;
  for (int rank = 0; rank < group->getSize(); ++rank)
    if (of_ranks[rank] == earliest) differing.push_back(rank);
  const std::string other = broadcast_text(mine.line(earliest), differing.front(), group, where);
  throw UsageError(c10::str("DistributedDataParallel: the ranks' modules differ: rank 0 has ", first.line(earliest),
                            ", but rank ", differing.front(), " has ", other,
                            differing.size() == 1 ? "" : c10::str(" (", differing.size(), " ranks differ there)"),
                            "; make the same module on all ranks"));
}

}  // namespace retinue
