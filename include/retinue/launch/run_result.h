#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "retinue/launch/detail/entry.h"
#include "retinue/process/failure.h"

namespace retinue {

/// How ranks that have all ended did so, and what their functions returned. Copies share the values. Rows of 256 KiB or
/// more in the values stay in job memory until the last copy and the ProcessContext are destroyed.
class RunResult {
 public:
  /// `returned` has one element per outcome. Its type is empty if the rank returned nothing.
  RunResult(std::vector<RankOutcome> outcomes, std::vector<detail::ReturnedValue> returned);

  /// Returns the outcomes of all ranks, by rank.
  const std::vector<RankOutcome>& outcomes() const noexcept { return outcomes_; }
  /// Returns the outcomes of the ranks that failed: the root cause first, ranks that only noticed another's failure
  /// last. Ranks that were stopped aren't failures.
  const std::vector<RankOutcome>& failures() const noexcept { return failures_; }
  bool ok() const noexcept { return failures_.empty(); }

  /// Returns what the function returned, by rank, without the ranks that failed or were stopped.
  /// Errors: UsageError if it returned another type than T, or if no rank returned anything although none failed.
  template <class T>
  std::map<int, T> values() const {
    std::map<int, T> values;
    for (const int rank : ranks_with_values(typeid(T))) values.emplace(rank, value<T>(rank));
    return values;
  }

  /// Returns what `rank` returned. Errors: UsageError if there is no such rank, if it returned nothing (the error
  /// reports how the rank ended), or if it returned another type than T.
  template <class T>
  T value(int rank) const {
    static_assert(std::is_same_v<T, std::decay_t<T>>, "give the type itself, without reference and const");
    detail::MustTravel<T>();
    const detail::ReadScope scope;
    T value{};
    detail::ValueInput input(archive_of(rank, typeid(T)), detail::Purpose::kReturned);
    input(value);
    return value;
  }

 private:
  std::vector<int> ranks_with_values(const std::type_info& wanted) const;
  const detail::Encoded& archive_of(int rank, const std::type_info& wanted) const;

  std::vector<RankOutcome> outcomes_;
  std::vector<RankOutcome> failures_;
  std::shared_ptr<const std::vector<detail::ReturnedValue>> returned_;
};

}  // namespace retinue
