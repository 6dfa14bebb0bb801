#include "samples.h"

#include <algorithm>
#include <cstring>

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

SpanBlock::SpanBlock(int ranks, int iterations) : ranks_(ranks), iterations_(iterations) {
  JobMemory& memory = *Runtime::current().memory();
  block_ = memory.allocate(sizeof(Span) * static_cast<std::size_t>(ranks_) * static_cast<std::size_t>(iterations_));
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

}  // namespace retinue::bench
