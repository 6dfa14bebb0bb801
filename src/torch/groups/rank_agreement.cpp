#include "torch/groups/rank_agreement.h"

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

RankNumbers gather_numbers(const std::vector<std::int64_t>& numbers, const ProcessGroup& group,
                           const std::source_location& where) {
  const c10::NoGradGuard no_grad;
  const auto width = static_cast<std::int64_t>(numbers.size());
  const at::Tensor mine = at::empty({width}, at::kLong);
  std::copy(numbers.begin(), numbers.end(), mine.data_ptr<std::int64_t>());
  const at::Tensor all = at::empty({group->getSize(), width}, at::kLong);
  all_gather_into_tensor(all, mine, group, {}, where);
  const auto* const row = all.const_data_ptr<std::int64_t>();
  RankNumbers result;
  for (int rank = 0; rank < group->getSize(); ++rank) result.emplace_back(row + rank * width, row + (rank + 1) * width);
  return result;
}

RankNumbers agree(std::string_view call, const ProcessGroup& group, const std::vector<std::int64_t>& numbers,
                  const std::string& problem, const std::source_location& where) {
  std::vector<std::int64_t> told = numbers;
  told.push_back(static_cast<std::int64_t>(problem.size()));
  RankNumbers all = gather_numbers(told, group, where);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::int64_t bytes = all[rank].back();
    if (bytes != 0)
      throw UsageError(
          c10::str(call, ": rank ", rank, ": ", tell_all(problem, bytes, static_cast<int>(rank), group, where)));
    all[rank].pop_back();
  }
  return all;
}

}  // namespace retinue
