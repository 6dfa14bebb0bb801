#include "retinue/launch/run_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/demangle.h"
#include "process/failure/failure_text.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// In the order in which root_cause() would name them.
std::vector<RankOutcome> failures_among(const std::vector<RankOutcome>& outcomes) {
  std::vector<RankOutcome> failures;
  std::copy_if(outcomes.begin(), outcomes.end(), std::back_inserter(failures), &is_failure);
  std::stable_sort(failures.begin(), failures.end(), [](const RankOutcome& a, const RankOutcome& b) {
    return std::tuple(a.consequence, a.ended) < std::tuple(b.consequence, b.ended);
  });
  return failures;
}

}  // namespace

RunResult::RunResult(std::vector<RankOutcome> outcomes, std::vector<detail::ReturnedValue> returned)
    : outcomes_(std::move(outcomes)),
      failures_(failures_among(outcomes_)),
      returned_(std::make_shared<const std::vector<detail::ReturnedValue>>(std::move(returned))) {
  if (returned_->size() != outcomes_.size()) throw UsageError("RunResult: one returned value per outcome");
}

std::vector<int> RunResult::ranks_with_values(const std::type_info& wanted) const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < returned_->size(); ++rank)
    if (!(*returned_)[rank].type.empty()) ranks.push_back(static_cast<int>(rank));
  const bool all_returned = std::all_of(outcomes_.begin(), outcomes_.end(),
                                        [](const RankOutcome& outcome) { return outcome.end == RankEnd::kReturned; });
  if (ranks.empty() && all_returned)
    throw UsageError(
        fmt::format("RunResult::values<{}>: no rank returned a value: the function returns void, or the ranks are "
                    "programs, or called exit(0)",
                    type_name(wanted.name())));
  return ranks;
}

const detail::Encoded& RunResult::archive_of(int rank, const std::type_info& wanted) const {
  if (rank < 0 || rank >= static_cast<int>(returned_->size()))
    throw UsageError(fmt::format("RunResult::value: there is no rank {}, only 0 to {}", rank, returned_->size() - 1));
  const auto index = static_cast<std::size_t>(rank);
  const detail::ReturnedValue& returned = (*returned_)[index];
  if (returned.type.empty())
    throw UsageError(fmt::format("RunResult::value<{}>: rank {} returned no value: it {}", type_name(wanted.name()),
                                 rank, ending_text(outcomes_[index])));
  if (returned.type != wanted.name())
    throw UsageError(fmt::format("RunResult: asked for a value of type {}, but the function returned {} (rank {})",
                                 type_name(wanted.name()), type_name(returned.type.c_str()), rank));
  return returned.value;
}

}  // namespace retinue
