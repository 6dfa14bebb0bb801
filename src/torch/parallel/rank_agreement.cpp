#include "torch/parallel/rank_agreement.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstring>

#include "retinue/base/error.h"

namespace retinue {

std::string tell_all(const std::string& text, std::int64_t bytes, int root, const ProcessGroup& group,
                     const std::source_location& where) {
  const at::Tensor characters = at::zeros({bytes}, at::kChar);
  if (group->getRank() == root) std::memcpy(characters.data_ptr(), text.data(), static_cast<std::size_t>(bytes));
  broadcast(characters, group, {.src = root}, where);
  return {static_cast<const char*>(characters.const_data_ptr()), static_cast<std::size_t>(bytes)};
}

RankNumbers agree(std::string_view call, const ProcessGroup& group, const std::vector<std::int64_t>& numbers,
                  const std::string& problem, const std::source_location& where) {
  const c10::NoGradGuard no_grad;
  const auto width = static_cast<std::int64_t>(numbers.size()) + 1;
  const at::Tensor mine = at::empty({width}, at::kLong);
  auto* const told = mine.data_ptr<std::int64_t>();
  told[0] = static_cast<std::int64_t>(problem.size());
  std::copy(numbers.begin(), numbers.end(), told + 1);
  const at::Tensor all = at::empty({group->getSize(), width}, at::kLong);
  all_gather_into_tensor(all, mine, group, {}, where);
  const auto* const row = all.const_data_ptr<std::int64_t>();
  RankNumbers result;
  for (int rank = 0; rank < group->getSize(); ++rank) {
    const auto* const begin = row + rank * width;
    if (*begin != 0)
      throw UsageError(c10::str(call, ": rank ", rank, ": ", tell_all(problem, *begin, rank, group, where)));
    result.emplace_back(begin + 1, begin + width);
  }
  return result;
}

}  // namespace retinue
