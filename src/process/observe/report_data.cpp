#include "process/observe/report_data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "base/site_text.h"
#include "base/version.h"
#include "ipc/memory/job_layout.h"
#include "ipc/memory/job_name.h"
#include "ipc/records/progress_record.h"
#include "os/sync/clock.h"
#include "process/failure/failure_text.h"
#include "process/observe/job_view.h"
#include "process/observe/run_report.h"
#include "process/observe/scalar_curves.h"
#include "process/trace/merged_calls.h"

namespace retinue {
namespace {

/// Of all ranks together: some 20 MB of text, which a browser shows at once.
constexpr std::size_t kMostCalls = 400'000;
constexpr std::size_t kFewestCalls = 500;  ///< Of a rank.

enum CallState : int { kEnded = 0, kUnderWay = 1, kFailed = 2 };

/// Texts that many calls share, numbered.
class Numbered {
 public:
  template <typename Make>
  std::size_t number_of(const std::string& text, Make make) {
    const auto [found, is_new] = numbers_.emplace(text, numbers_.size());
    if (is_new) all_.push_back(make());
    return found->second;
  }
  nlohmann::json take() { return std::move(all_); }

 private:
  std::map<std::string, std::size_t> numbers_;
  nlohmann::json all_ = nlohmann::json::array();
};

struct Words {
  Numbered kinds;
  Numbered groups;
  Numbered sites;
};

/// The calls of all ranks, and how these ended.
struct Run {
  const MergedCalls& calls;
  const std::vector<RankOutcome>& outcomes;  ///< By the process's index in `calls`.
  std::uint64_t begin = 0;                   ///< When the first of them started.
};

/// For whom it waited. Where several never came, that is one that failed: it kept the others from coming.
std::uint32_t late_of(const CallOf& which, const CallTimes& times, const Run& run) {
  const auto is_own_failure = [&](std::uint32_t process) {
    return is_failure(run.outcomes[process]) && !run.outcomes[process].consequence;
  };
  const std::vector<std::uint32_t>& missing = run.calls.find(which)->missing;
  const auto failed = std::ranges::find_if(missing, is_own_failure);
  return failed != missing.end() ? *failed : times.late;
}

/// As the page's script takes it apart again.
nlohmann::json data_of(const CallOf& which, const Run& run, std::uint64_t end, Words& words) {
  const MergedCalls& calls = run.calls;
  const Recording& recording = calls.process_of(which).recording;
  const RecordedCall& call = calls.call_of(which);
  const std::string& kind = recording.kind_of(call);
  const RecordedGroup& group = recording.group_of(call);
  const RecordedPlace& place = recording.site_of(call);
  const std::string site = site_text(place.file, place.line);
  const std::uint64_t ended = call.ended_ns != 0 ? call.ended_ns : end;
  const std::uint64_t taken = ended - std::min(call.started_ns, ended);
  const CallState state = call.ended_ns == 0 ? kUnderWay : call.failed ? kFailed : kEnded;
  const std::optional<CallTimes> times = calls.times_of(which);
  const auto make_group = [&] { return nlohmann::json{{"name", group.name}, {"size", group.size}}; };
  return {words.kinds.number_of(kind, [&] { return kind; }), words.groups.number_of(group.name, make_group),
          call.sequence, call.started_ns - std::min(run.begin, call.started_ns), taken, call.bytes,
          words.sites.number_of(site, [&] { return nlohmann::json(site); }), static_cast<int>(state), call.peer,
          // One that was under way waited no longer than its rank lived.
          times ? std::min(times->waiting_ns, taken) : 0, times ? static_cast<int>(late_of(which, *times, run)) : -1};
}

nlohmann::json data_of(const ProcessSlot& slot, std::uint32_t process, const Run& run, std::size_t most_calls,
                       Words& words) {
  const RankOutcome& outcome = run.outcomes[process];
  const Recording& recording = run.calls.processes()[process].recording;
  const std::uint64_t begin = run.begin;
  const std::uint64_t started = slot.started_ns.load(std::memory_order_relaxed);
  const std::uint64_t ended = std::max(started, slot.ended_ns.load(std::memory_order_relaxed));
  nlohmann::json calls = nlohmann::json::array();
  const std::size_t kept = recording.calls.size();
  for (std::size_t i = kept - std::min(kept, most_calls); i < kept; ++i)
    calls.push_back(data_of({.process = process, .call = static_cast<std::uint32_t>(i)}, run, ended, words));
  return {{"rank", outcome.rank},
          {"world_rank", outcome.world_rank},
          {"pid", slot.pid.load(std::memory_order_relaxed)},
          {"ending", ending_text(outcome)},
          // A rank that only noticed another's failure is that one's victim.
          {"failure", !is_failure(outcome)  ? "none"
                      : outcome.consequence ? "consequence"
                                            : "own"},
          {"failed_at",
           static_cast<std::uint64_t>(outcome.ended.count()) - std::min<std::uint64_t>(begin, outcome.ended.count())},
          {"begun", started - std::min(begin, started)},
          {"ended", ended - std::min(begin, ended)},
          {"cpu_ns", (outcome.use.user_cpu + outcome.use.system_cpu).count()},
          {"memory_bytes", outcome.use.peak_memory_bytes},
          {"calls_made", recording.total},
          {"calls", std::move(calls)}};
}

/// Null where the rank had no StepTimer.
nlohmann::json data_of(const StepSums& sums) {
  if (sums.steps == 0) return nullptr;
  return {{"count", sums.steps},        {"total", sums.total_ns},     {"data", sums.data_ns},
          {"compute", sums.compute_ns}, {"waiting", sums.waiting_ns}, {"communication", sums.communication_ns}};
}

/// Adds what the ranks told of their training.
void add_progress(const JobMemory& memory, const EndedContext& context, nlohmann::json& ranks,
                  std::vector<std::string>& scalar_files) {
  for (std::size_t i = 0; i < context.slots.size(); ++i) {
    const auto progress = read_progress(memory, context.slots[i]).value_or(Progress());
    ranks[i]["steps"] = data_of(progress.sums);
    for (const std::string& file : progress.scalar_files)
      if (std::ranges::find(scalar_files, file) == scalar_files.end()) scalar_files.push_back(file);
  }
}

std::string failure_of(const std::vector<RankOutcome>& outcomes) {
  return std::any_of(outcomes.begin(), outcomes.end(), is_failure) ? failure_text(outcomes) : "";
}

}  // namespace

nlohmann::json report_data_of(const JobMemory& memory, const EndedContext& context) {
  std::uint64_t begin = ~std::uint64_t{0};
  std::uint64_t end = 0;
  std::vector<RankOutcome> outcomes;
  for (const std::uint32_t index : context.slots) {
    const ProcessSlot& slot = process_slot(memory, index);
    outcomes.push_back(outcome_of(slot));
    if (const std::uint64_t started = slot.started_ns.load(std::memory_order_relaxed); started != 0)
      begin = std::min(begin, started);
    end = std::max(end, slot.ended_ns.load(std::memory_order_relaxed));
  }
  const std::size_t most_calls = std::max(kFewestCalls, kMostCalls / std::max<std::size_t>(1, context.slots.size()));
  Words words;
  const MergedCalls calls(read_recordings(memory, context.slots));
  const Run run{.calls = calls, .outcomes = outcomes, .begin = begin};
  nlohmann::json ranks = nlohmann::json::array();
  for (std::uint32_t i = 0; i < context.slots.size(); ++i)
    ranks.push_back(data_of(process_slot(memory, context.slots[i]), i, run, most_calls, words));
  std::vector<std::string> scalar_files;
  add_progress(memory, context, ranks, scalar_files);
  const std::string failure = failure_of(outcomes);
  return {{"id", context.id},
          {"name", context.name},
          {"taken", end - std::min(begin, end)},
          {"failure", failure.empty() ? nlohmann::json() : nlohmann::json(failure)},
          {"ranks", std::move(ranks)},
          {"scalars", scalar_curves(scalar_files)},
          {"kinds", words.kinds.take()},
          {"groups", words.groups.take()},
          {"sites", words.sites.take()}};
}

nlohmann::json report_data_of(const JobMemory& memory) {
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  const auto begun = std::chrono::system_clock::now() - age_of(memory);
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return {{"id", fmt::format("{:016x}", memory.header().job_id)},
          {"name", job_name(memory.header())},
          {"host", host},
          {"begun_ms", duration_cast<milliseconds>(begun.time_since_epoch()).count()},
          {"version", version()}};
}

}  // namespace retinue
