#include "torch/training/module_comparison.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "retinue/base/error.h"
#include "torch/groups/rank_agreement.h"

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

}  // namespace

void check_same_structure(const torch::nn::Module& module, const std::unordered_set<std::string>& ignored,
                          const ProcessGroup& group, std::source_location where) {
  const Structure mine(module, ignored);
  const std::string text = mine.text();
  const RankNumbers sizes = gather_numbers({static_cast<std::int64_t>(text.size())}, group, where);
  const Structure first(tell_all(text, sizes[0][0], 0, group, where));
  const std::int64_t difference = first.difference(mine);
  const std::string line = difference == kSame ? "" : mine.line(difference);
  const RankNumbers places = gather_numbers({difference, static_cast<std::int64_t>(line.size())}, group, where);
  const std::int64_t earliest = std::ranges::min(places, {}, [](const auto& place) { return place[0]; })[0];
  if (earliest == kSame) return;
  std::vector<int> differing;
  for (int rank = 0; rank < group->getSize(); ++rank)
    if (places[static_cast<std::size_t>(rank)][0] == earliest) differing.push_back(rank);
  const std::int64_t bytes = places[static_cast<std::size_t>(differing.front())][1];
  const std::string other = tell_all(line, bytes, differing.front(), group, where);
  throw UsageError(c10::str("DistributedDataParallel: the ranks' modules differ: rank 0 has ", first.line(earliest),
                            ", but rank ", differing.front(), " has ", other,
                            differing.size() == 1 ? "" : c10::str(" (", differing.size(), " ranks differ there)"),
                            "; make the same module on all ranks"));
}

}  // namespace retinue
