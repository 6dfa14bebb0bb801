#pragma once

#include <time.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "bench.h"
#include "retinue/launch/spawn.h"

namespace retinue::bench {

/// When a rank entered and left one operation. Units: nanoseconds of CLOCK_MONOTONIC, which all processes share.
struct Span {
  std::int64_t enter = 0;
  std::int64_t exit = 0;
};

/// By rank, then by iteration.
using Spans = std::vector<std::vector<Span>>;

/// What one process spent on the timed iterations of a round, and on what is done between them.
struct Usage {
  std::int64_t cpu_ns = 0;
  std::int64_t page_faults = 0;
  std::int64_t memory_bytes = 0;  ///< Of memory that processes share, its share: PSS. After the warm-ups.

  static Usage now();
};

/// The memory of this process now, as in Usage. 0 where the kernel doesn't tell. Blocking: up to milliseconds.
std::int64_t memory_bytes();

/// Samples of a round with the usage of its ranks: the mean in an iteration, and the mean memory.
Samples with_usage(std::vector<double> us, const std::vector<Usage>& of_ranks, int iterations);

inline std::int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// For each iteration the time from the last rank's entry to the last rank's exit. Units: microseconds.
std::vector<double> collective_times(const Spans& spans);

/// How the samples of a round are made of what its ranks measured.
using TimesOf = std::vector<double> (*)(const Spans& spans);

/// For each iteration the mean over the ranks of their own time. Units: microseconds.
std::vector<double> mean_times(const Spans& spans);

/// For each iteration the time from the first rank's entry to the last rank's exit. Units: microseconds.
std::vector<double> whole_times(const Spans& spans);

/// For each iteration the time from rank 0's entry, who sends, to rank 1's exit, who receives. Units: microseconds.
std::vector<double> one_way_times(const Spans& spans);

/// One sample: the time of the whole round, by its number of iterations. Units: microseconds. Beside an unrelated
/// program, which takes a CPU for milliseconds at a time: of thousands of calls one is long then and the others are as
/// ever, which no median shows.
std::vector<double> time_of_round(const Spans& spans);

/// For each iteration a single rank's own time. Units: microseconds.
std::vector<double> times_of_rank(const Spans& spans, std::size_t rank);

/// What a rank is to do in one round, and where in job memory it leaves what it measured.
struct Round {
  enum class Buffer : std::uint8_t { kPrivate, kJob };

  int warmups = 0;
  int iterations = 0;
  std::uint64_t bytes = 0;
  Buffer buffer = Buffer::kPrivate;
  std::uint64_t spans_offset = 0;  ///< Filled by measure_round.

  template <class Archive>
  void serialize(Archive& archive) {
    archive(warmups, iterations, bytes, buffer, spans_offset);
  }

  /// The place of this rank's iterations.
  Span* spans(const RankContext& context) const {
    return context.memory()->at<Span>(spans_offset) + std::int64_t{context.rank()} * iterations;
  }
  /// After the iterations of all ranks.
  Usage* usage(const RankContext& context) const {
    Span* const end = context.memory()->at<Span>(spans_offset) + std::int64_t{context.world_size()} * iterations;
    return reinterpret_cast<Usage*>(end) + context.rank();
  }
};

/// Runs `operation` as often as the round says, with `before` and `after` it in each iteration, untimed.
template <class Before, class Operation, class After>
void measure_iterations(const Round& round, const RankContext& context, Before&& before, Operation&& operation,
                        After&& after) {
  Span* spans = round.spans(context);
  Usage begin;
  std::int64_t memory = 0;
  for (int i = -round.warmups; i < round.iterations; ++i) {
    if (i == 0) {
      memory = memory_bytes();
      begin = Usage::now();
    }
    before(i);
    const std::int64_t enter = now_ns();
    operation();
    const std::int64_t exit = now_ns();
    after(i);
    if (i >= 0) spans[i] = {enter, exit};
  }
  const Usage end = Usage::now();
  *round.usage(context) = {end.cpu_ns - begin.cpu_ns, end.page_faults - begin.page_faults, memory};
}

/// A block of job memory that the ranks of one round write to.
class SpanBlock {
 public:
  SpanBlock(int ranks, int iterations);
  ~SpanBlock();
  SpanBlock(const SpanBlock&) = delete;
  SpanBlock& operator=(const SpanBlock&) = delete;

  std::uint64_t offset() const { return block_.offset; }
  /// Errors: std::logic_error when a rank left an iteration out.
  Spans spans() const;
  std::vector<Usage> usage() const;

 private:
  int ranks_;
  int iterations_;
  BlockHandle block_;
};

/// Starts new ranks that run `entry(RankContext&, round)`, and returns what they measured.
template <auto entry, class AnyRound>
Spans measure_round(int ranks, AnyRound round, std::vector<Usage>* usage = nullptr) {
  const SpanBlock block(ranks, round.iterations);
  round.spans_offset = block.offset();
  spawn<entry>({.nprocs = ranks}, round);
  if (usage != nullptr) *usage = block.usage();
  return block.spans();
}

}  // namespace retinue::bench
