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
};

/// Runs `operation` as often as the round says, with `before` and `after` it in each iteration, untimed.
template <class Before, class Operation, class After>
void measure_iterations(const Round& round, const RankContext& context, Before&& before, Operation&& operation,
                        After&& after) {
  Span* spans = round.spans(context);
  for (int i = -round.warmups; i < round.iterations; ++i) {
    before(i);
    const std::int64_t enter = now_ns();
    operation();
    const std::int64_t exit = now_ns();
    after(i);
    if (i >= 0) spans[i] = {enter, exit};
  }
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

 private:
  int ranks_;
  int iterations_;
  BlockHandle block_;
};

/// Starts new ranks that run `entry(RankContext&, round)`, and returns what they measured.
template <auto entry, class AnyRound>
Spans measure_round(int ranks, AnyRound round) {
  const SpanBlock block(ranks, round.iterations);
  round.spans_offset = block.offset();
  spawn<entry>({.nprocs = ranks}, round);
  return block.spans();
}

}  // namespace retinue::bench
