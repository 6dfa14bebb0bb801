#include "samples.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

namespace retinue::bench {
namespace {

std::size_t iterations_of(const Spans& spans) {
  if (spans.empty() || spans.front().empty()) throw std::logic_error("a round without samples");
  for (const std::vector<Span>& of_rank : spans) {
    if (of_rank.size() != spans.front().size())
      throw std::logic_error("ranks measured different numbers of iterations");
  }
  return spans.front().size();
}

}  // namespace

std::vector<double> collective_times(const Spans& spans) {
  std::vector<double> times(iterations_of(spans));
  for (std::size_t i = 0; i < times.size(); ++i) {
    Span last = spans.front()[i];
    for (const std::vector<Span>& of_rank : spans) {
      last.enter = std::max(last.enter, of_rank[i].enter);
      last.exit = std::max(last.exit, of_rank[i].exit);
    }
    times[i] = static_cast<double>(last.exit - last.enter) / 1000;
  }
  return times;
}

std::vector<double> mean_times(const Spans& spans) {
  std::vector<double> times(iterations_of(spans));
  for (std::size_t i = 0; i < times.size(); ++i) {
    for (const std::vector<Span>& of_rank : spans) times[i] += static_cast<double>(of_rank[i].exit - of_rank[i].enter);
    times[i] /= 1000 * static_cast<double>(spans.size());
  }
  return times;
}

std::vector<double> whole_times(const Spans& spans) {
  std::vector<double> times(iterations_of(spans));
  for (std::size_t i = 0; i < times.size(); ++i) {
    Span whole = spans.front()[i];
    for (const std::vector<Span>& of_rank : spans)
      whole = {std::min(whole.enter, of_rank[i].enter), std::max(whole.exit, of_rank[i].exit)};
    times[i] = static_cast<double>(whole.exit - whole.enter) / 1000;
  }
  return times;
}

std::vector<double> time_of_round(const Spans& spans) {
  const std::size_t iterations = iterations_of(spans);
  Span whole = spans.front().front();
  for (const std::vector<Span>& of_rank : spans)
    whole = {std::min(whole.enter, of_rank.front().enter), std::max(whole.exit, of_rank.back().exit)};
  return {static_cast<double>(whole.exit - whole.enter) / 1000 / static_cast<double>(iterations)};
}

std::vector<double> one_way_times(const Spans& spans) {
  std::vector<double> times(iterations_of(spans));
  for (std::size_t i = 0; i < times.size(); ++i)
    times[i] = static_cast<double>(spans.at(1)[i].exit - spans.at(0)[i].enter) / 1000;
  return times;
}

std::vector<double> times_of_rank(const Spans& spans, std::size_t rank) {
  return mean_times({spans.at(rank)});
}

Usage Usage::now() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& time) { return (time.tv_sec * 1'000'000 + time.tv_usec) * 1000; };
  return {ns(usage.ru_utime) + ns(usage.ru_stime), usage.ru_minflt + usage.ru_majflt, 0};
}

std::int64_t memory_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);)
    if (line.starts_with("Pss:")) return std::stoll(line.substr(4)) * 1024;
  return 0;
}

Samples with_usage(std::vector<double> us, const std::vector<Usage>& of_ranks, int iterations) {
  Samples samples(std::move(us));
  const double calls = static_cast<double>(of_ranks.size()) * iterations;
  double cpu_us = 0, page_faults = 0, memory_mb = 0;
  for (const Usage& usage : of_ranks) {
    cpu_us += static_cast<double>(usage.cpu_ns) / 1000 / calls;
    page_faults += static_cast<double>(usage.page_faults) / calls;
    memory_mb += static_cast<double>(usage.memory_bytes) / 1e6 / static_cast<double>(of_ranks.size());
  }
  samples.costs = {cpu_us, page_faults, memory_mb};
  return samples;
}

SpanBlock::SpanBlock(int ranks, int iterations) : ranks_(ranks), iterations_(iterations) {
  JobMemory& memory = *Runtime::current().memory();
  const auto ranks_count = static_cast<std::size_t>(ranks_);
  block_ = memory.allocate(ranks_count * (sizeof(Span) * static_cast<std::size_t>(iterations_) + sizeof(Usage)));
  std::memset(memory.at(block_.offset), 0, block_.bytes);
}

SpanBlock::~SpanBlock() {
  Runtime::current().memory()->release(block_);
}

Spans SpanBlock::spans() const {
  const Span* first = Runtime::current().memory()->at<Span>(block_.offset);
  Spans spans;
  for (int rank = 0; rank < ranks_; ++rank, first += iterations_) {
    spans.emplace_back(first, first + iterations_);
    for (const Span& span : spans.back()) {
      if (span.exit == 0) throw std::logic_error("a rank left an iteration out");
    }
  }
  return spans;
}

std::vector<Usage> SpanBlock::usage() const {
  const Span* const end = Runtime::current().memory()->at<Span>(block_.offset) + std::int64_t{ranks_} * iterations_;
  const auto* const first = reinterpret_cast<const Usage*>(end);
  return {first, first + ranks_};
}

}  // namespace retinue::bench
