#include <nlohmann/json.hpp>

#include "os/process/signal_names.h"
#include "process/failure/failure_text.h"
#include "process/failure/last_lines.h"

namespace retinue {
namespace {

constexpr std::size_t kStderrLines = 20;

double seconds_of(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

nlohmann::ordered_json json_of(const RankOutcome& outcome) {
  return {{"rank", outcome.rank},
          {"local_rank", outcome.local_rank},
          {"world_rank", outcome.world_rank},
          {"pid", outcome.pid},
          {"end", to_string(outcome.end)},
          {"failed", is_failure(outcome)},
          {"exit_code", outcome.exit_code},
          {"signal", outcome.signal},
          {"signal_name", outcome.signal == 0 ? "" : signal_name(outcome.signal)},
          {"core_dumped", outcome.core_dumped},
          {"out_of_memory", outcome.out_of_memory},
          {"abandoned", outcome.abandoned},
          {"consequence", outcome.consequence},
          {"type", outcome.type},
          {"message", outcome.message},
          {"stack", outcome.stack},
          {"ended_ns", outcome.ended.count()},
          {"stopped_ns", outcome.stopped.count()},
          {"lifetime_s", seconds_of(outcome.use.lifetime)},
          {"user_cpu_s", seconds_of(outcome.use.user_cpu)},
          {"system_cpu_s", seconds_of(outcome.use.system_cpu)},
          {"peak_memory_bytes", outcome.use.peak_memory_bytes},
          {"stdout_log", outcome.stdout_log},
          {"stderr_log", outcome.stderr_log},
          {"trace", outcome.trace},
          {"stderr_last_lines", last_lines(outcome.stderr_log, kStderrLines)}};
}

}  // namespace

const char* to_string(RankEnd end) noexcept {
  switch (end) {
    case RankEnd::kRunning:
      return "running";
    case RankEnd::kReturned:
      return "returned";
    case RankEnd::kRaised:
      return "raised";
    case RankEnd::kExited:
      return "exited";
    case RankEnd::kSignaled:
      return "signaled";
    case RankEnd::kStopped:
      return "stopped";
    case RankEnd::kNotStarted:
      return "not_started";
  }
  return "unknown";
}

std::string failure_json(std::span<const RankOutcome> outcomes) {
  if (outcomes.empty()) throw UsageError("failure_json: the list of outcomes is empty");
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const RankOutcome& outcome : outcomes) ranks.push_back(json_of(outcome));
  const nlohmann::ordered_json all = {{"root_cause", outcomes[root_cause(outcomes)].rank},
                                      {"message", failure_text(outcomes)},
                                      {"ranks", std::move(ranks)}};
  // Messages and output may be in any encoding.
  return all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace retinue
