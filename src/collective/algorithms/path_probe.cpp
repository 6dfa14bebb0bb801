#include "collective/algorithms/path_probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <vector>

#include "collective/board/path_table.h"
#include "retinue/ipc/shared_block.h"

namespace retinue {
namespace {

using Clock = std::chrono::steady_clock;

// Calls of one way follow each other, as in a program: the first ones find staging as the other way left it.
constexpr int kWarmups = 2;
constexpr int kCalls = 2;
constexpr int kTurns = 6;
constexpr std::size_t kTimes = std::size_t{kTurns} * kCalls;
constexpr std::uint64_t kAlways = std::numeric_limits<std::uint64_t>::max();

SharedBlock runtime_block(const std::shared_ptr<JobMemory>& memory, std::size_t bytes) {
  const BlockHandle block = memory->allocate(bytes, BlockUse::kRuntime);
  SharedBlock held = SharedBlock::hold(memory, block);
  memory->release(block);
  return held;
}

/// Goes the same way on all members; only rank 0's times count.
class Probe {
 public:
  using Run = std::function<void(const CollectiveCall&)>;
  using Border = std::uint64_t PathTable::*;

  Probe(Session& session, const Run& run)
      : session_(session),
        run_(run),
        block_(runtime_block(session.group().memory, kStageBytes)),
        own_(kStageBytes),
        parts_(own_.size() * static_cast<std::size_t>(session.size())) {}

  PathTable measure() {
    const PathTable built_in;
    const std::size_t ranks = static_cast<std::size_t>(session_.size());
    PathTable table;
    const auto sum = [](std::byte* data, std::size_t bytes) {
      return CollectiveCall::all_reduce(data, bytes / sizeof(float), Dtype::kFloat32, ReduceOp::kSum);
    };
    const auto copy = [](std::byte* data, std::size_t bytes) { return CollectiveCall::broadcast(data, bytes, 0); };
    const auto copy_all = [&](std::byte* data, std::size_t bytes) {
      return CollectiveCall::all_gather(data, parts_.data(), bytes);
    };
    go_round_rings(copy_all(own_.data(), kStageBytes));
    table.staged_in_job = border(&PathTable::staged_in_job, built_in.staged_in_job, 2048, 1, block_.data(), sum);
    table.staged_in_job_one_way =
        border(&PathTable::staged_in_job_one_way, built_in.staged_in_job_one_way, 2048, 1, block_.data(), copy);
    table.staged = border(&PathTable::staged, built_in.staged, 16384, 1, own_.data(), copy_all);
    table.staged_one_way = border(&PathTable::staged_one_way, built_in.staged_one_way, 4096, 1, own_.data(), copy);
    table.staged_reads = border(&PathTable::staged_reads, built_in.staged_reads, 8192, ranks, own_.data(), sum);
    table.stored_plainly = border(&PathTable::stored_plainly, built_in.stored_plainly, 8192, 1, own_.data(), copy_all);
    if (session_.places().span_caches()) {
      BorderSample sample = compare(sum(own_.data(), sizeof(float)), own_.data(), sizeof(float), &PathTable::one_level);
      sample.bytes = ranks;
      table.one_level = border_of({&sample, 1}, built_in.one_level);
    }
    run_(CollectiveCall::broadcast(&table, sizeof table, 0));
    return table;
  }

 private:
  /// Touches all of staging and chunks for the first time, which takes much longer than any other.
  void go_round_rings(const CollectiveCall& call) {
    for (const std::uint64_t staged : {kAlways, std::uint64_t{0}}) {
      PathTable table;
      table.staged = staged;
      session_.set_paths({table, TableSource::kToMeasure});
      for (std::size_t bytes = 0; bytes < 2 * kChunkRingBytes; bytes += kStageBytes) run_(call);
    }
  }

  /// From `smallest` on in powers of two; `per_byte`: what a byte of a call counts for the border.
  template <typename MakeCall>
  std::uint64_t border(Border border, std::uint64_t built_in, std::size_t smallest, std::size_t per_byte,
                       std::byte* data, MakeCall make_call) {
    std::vector<BorderSample> samples;
    for (std::size_t bytes = smallest; bytes <= kStageBytes; bytes *= 2) {
      BorderSample sample = compare(make_call(data, bytes), data, bytes, border);
      sample.bytes = bytes * per_byte;
      samples.push_back(sample);
    }
    return border_of(samples, built_in);
  }

  BorderSample compare(const CollectiveCall& call, std::byte* data, std::size_t bytes, Border border) {
    PathTable below;
    below.*border = kAlways;
    PathTable above;
    above.*border = 0;
    std::vector<double> below_us;
    std::vector<double> above_us;
    for (int turn = 0; turn < kTurns; ++turn) {
      measure(call, data, bytes, below, below_us);
      measure(call, data, bytes, above, above_us);
    }
    // Where others disturb it, it says nothing.
    if (is_unsteady(below_us) || is_unsteady(above_us)) return {.bytes = bytes, .below_us = 1, .above_us = 1};
    return {.bytes = bytes, .below_us = below_us[kTimes / 2], .above_us = above_us[kTimes / 2]};
  }

  /// Sorts them, too.
  static bool is_unsteady(std::vector<double>& times) {
    std::sort(times.begin(), times.end());
    return times[kTimes * 3 / 4] > 2 * times[kTimes / 4];
  }

  void measure(const CollectiveCall& call, std::byte* data, std::size_t bytes, const PathTable& table,
               std::vector<double>& times) {
    session_.set_paths({table, TableSource::kToMeasure});
    for (int i = -kWarmups; i < kCalls; ++i) {
      std::memset(data, 1, bytes);  // As its owner would have written it.
      run_(CollectiveCall::barrier());
      const auto start = Clock::now();
      run_(call);
      run_(CollectiveCall::barrier());
      if (i >= 0) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
  }

  Session& session_;
  const Run& run_;
  SharedBlock block_;
  std::vector<std::byte> own_;
  std::vector<std::byte> parts_;  ///< One of each member.
};

}  // namespace

void measure_paths(Session& session, const std::function<void(const CollectiveCall&)>& run) {
  if (session.paths_source() != TableSource::kToMeasure || session.size() < 2) return;
  bool all_spin = session.waiter().spins();
  run(CollectiveCall::all_reduce(&all_spin, 1, Dtype::kBool, ReduceOp::kLogicalAnd));
  if (!all_spin) return session.set_paths({session.paths(), TableSource::kBuiltIn});
  const PathTable table = Probe(session, run).measure();
  session.set_paths({table, TableSource::kMeasured});
  if (session.rank() != 0) return;
  set_job_paths(session.group(), table, session.deadline());
  keep_path_table(table);
}

}  // namespace retinue
