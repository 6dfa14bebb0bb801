#include "retinue/process/failure.h"

#include <utility>

#include "os/process/signal_names.h"

namespace retinue {

ProcessException::ProcessException(const std::string& message, std::vector<RankOutcome> outcomes,
                                   std::size_t root_cause)
    : Error(message),
      outcomes_(std::make_shared<const std::vector<RankOutcome>>(std::move(outcomes))),
      root_cause_(root_cause) {
  if (root_cause >= outcomes_->size()) throw UsageError("ProcessException: root_cause is not an index of the outcomes");
}

int ProcessExitedException::signal() const noexcept {
  const bool is_killed = outcome().end == RankEnd::kSignaled || outcome().end == RankEnd::kStopped;
  return is_killed ? outcome().signal : 0;
}

int ProcessExitedException::exit_code() const noexcept {
  return signal() != 0 ? -signal() : outcome().exit_code;
}

std::string ProcessExitedException::signal_name() const {
  return signal() != 0 ? retinue::signal_name(signal()) : std::string();
}

}  // namespace retinue
