#include "job_sampler.h"

#include <algorithm>
#include <utility>

#include "ipc/records/recorded_calls.h"
#include "os/sync/clock.h"

namespace retinue {
namespace {

/// Of a process, in one look; of its first one all that a recorder keeps by default, to have a past to tell of.
constexpr std::size_t kMostCalls = 1000;
constexpr std::size_t kMostAtFirst = 16'384;

}  // namespace

JobSample JobSampler::next() {
  JobSample sample;
  for (RankView& view : view_ranks(*memory_)) sample.ranks.push_back(sample_of(std::move(view)));
  sample.straggler = stragglers_.worst(monotonic_ns());
  return sample;
}

RankSample JobSampler::sample_of(RankView view) {
  Known& known = known_[view.slot];
  const bool is_first = known.looked_ns == 0 || known.pid != view.pid;
  if (is_first) known = {.pid = view.pid};
  const std::uint64_t total = count_recorded_calls(*memory_, view.slot);
  const double mean_bytes = read_calls(view, known);
  const std::uint64_t now = monotonic_ns();
  RankSample sample{.view = std::move(view)};
  const std::uint64_t before = std::exchange(known.total, total);
  const auto cpu_before = std::exchange(known.cpu, sample.view.cpu);
  const std::uint64_t steps_before = std::exchange(known.steps, sample.view.steps);
  const std::uint64_t looked = std::exchange(known.looked_ns, now);
  if (is_first || now <= looked) return sample;
  const double seconds = static_cast<double>(now - looked) * 1e-9;
  const auto rate = [seconds](std::uint64_t from, std::uint64_t to) {
    return static_cast<double>(to - std::min(from, to)) / seconds;
  };
  sample.steps_per_second = rate(steps_before, sample.view.steps);
  sample.calls_per_second = rate(before, total);
  sample.bytes_per_second = mean_bytes * sample.calls_per_second;
  sample.cpu_percent = std::max(0.0, static_cast<double>((sample.view.cpu - cpu_before).count()) * 1e-7 / seconds);
  return sample;
}

double JobSampler::read_calls(const RankView& view, Known& known) {
  const auto calls =
      read_calls_since(*memory_, view.slot, known.next_call, known.looked_ns == 0 ? kMostAtFirst : kMostCalls);
  if (calls.empty()) return 0;
  known.next_call = calls.back().record + 1;
  const auto recorder = read_recorder(*memory_, view.slot);
  if (!recorder) return 0;
  double bytes = 0;
  for (const RecordedCall& call : calls) {
    bytes += static_cast<double>(call.bytes);
    if (!recorder->is_message(call)) stragglers_.add({view.context, view.rank}, recorder->group_of(call), call);
  }
  return bytes / static_cast<double>(calls.size());
}

}  // namespace retinue
