#include "process/report_data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "ipc/job_layout.h"
#include "ipc/job_name.h"
#include "ipc/recorded_calls.h"
#include "os/clock.h"
#include "process/failure_text.h"
#include "process/job_view.h"
#include "process/run_report.h"

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

/// As the page's script takes it apart again.
nlohmann::json data_of(const RecordedCall& call, const Recording& recording, std::uint64_t begin, std::uint64_t end,
                       Words& words) {
  const std::string& kind = recording.kind_of(call);
  const RecordedGroup& group = recording.group_of(call);
  const RecordedPlace& place = recording.site_of(call);
  std::string site = place.file.empty() ? "" : place.file + ":" + std::to_string(place.line);
  const std::uint64_t ended = call.ended_ns != 0 ? call.ended_ns : end;
  const CallState state = call.ended_ns == 0 ? kUnderWay : call.failed ? kFailed : kEnded;
  return {words.kinds.number_of(kind, [&] { return kind; }),
          words.groups.number_of(group.name,
                                 [&] {
                                   return nlohmann::json{{"name", group.name}, {"size", group.size}};
                                 }),
          call.sequence,
          call.started_ns - std::min(begin, call.started_ns),
          ended - std::min(call.started_ns, ended),
          call.bytes,
          words.sites.number_of(site, [&] { return site; }),
          static_cast<int>(state),
          call.peer};
}

nlohmann::json data_of(const ProcessSlot& slot, const std::optional<Recording>& recording, std::size_t most_calls,
                       std::uint64_t begin, Words& words) {
  const RankOutcome outcome = outcome_of(slot);
  const std::uint64_t started = slot.started_ns.load(std::memory_order_relaxed);
  const std::uint64_t ended = std::max(started, slot.ended_ns.load(std::memory_order_relaxed));
  nlohmann::json calls = nlohmann::json::array();
  if (recording) {
    const std::size_t skipped = recording->calls.size() - std::min(recording->calls.size(), most_calls);
    for (std::size_t i = skipped; i < recording->calls.size(); ++i)
      calls.push_back(data_of(recording->calls[i], *recording, begin, ended, words));
  }
  return {{"rank", slot.rank},
          {"pid", slot.pid.load(std::memory_order_relaxed)},
          {"ending", ending_text(outcome)},
          {"begun", started - std::min(begin, started)},
          {"ended", ended - std::min(begin, ended)},
          {"cpu_ns", (outcome.use.user_cpu + outcome.use.system_cpu).count()},
          {"memory_bytes", outcome.use.peak_memory_bytes},
          {"calls_made", recording ? recording->total : 0},
          {"calls", std::move(calls)}};
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
  nlohmann::json ranks = nlohmann::json::array();
  for (const std::uint32_t index : context.slots)
    ranks.push_back(data_of(process_slot(memory, index), read_recording(memory, index), most_calls, begin, words));
  const std::string failure = failure_of(outcomes);
  return {{"id", context.id},
          {"name", context.name},
          {"taken", end - std::min(begin, end)},
          {"failure", failure.empty() ? nlohmann::json() : nlohmann::json(failure)},
          {"ranks", std::move(ranks)},
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
          {"version", RETINUE_VERSION}};
}

}  // namespace retinue
