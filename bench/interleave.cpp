#include <algorithm>
#include <cmath>

#include "bench.h"

namespace retinue::bench {

double quantile(std::vector<double> values, double q) {
  if (values.empty()) throw std::logic_error("quantile of no values");
  const auto place = static_cast<std::ptrdiff_t>(std::ceil(q * static_cast<double>(values.size()))) - 1;
  const auto nth = values.begin() + std::max<std::ptrdiff_t>(place, 0);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

namespace {

Costs median_of(const std::vector<Costs>& rounds) {
  const auto median = [&](double Costs::*member) {
    std::vector<double> values;
    for (const Costs& costs : rounds) values.push_back(costs.*member);
    return quantile(std::move(values), 0.5);
  };
  return {median(&Costs::cpu_us), median(&Costs::page_faults), median(&Costs::memory_mb)};
}

}  // namespace

std::vector<Figures> run_interleaved(const std::vector<Contender>& contenders, int rounds) {
  std::vector<Figures> figures(contenders.size());
  std::vector<std::vector<double>> samples(contenders.size());
  std::vector<std::vector<Costs>> costs(contenders.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t turn = 0; turn < contenders.size(); ++turn) {
      const std::size_t i = (turn + static_cast<std::size_t>(round)) % contenders.size();
      if (!figures[i].skipped.empty()) continue;
      try {
        const Samples taken = contenders[i].round();
        figures[i].round_medians.push_back(quantile(taken.us, 0.5));
        samples[i].insert(samples[i].end(), taken.us.begin(), taken.us.end());
        if (taken.costs) costs[i].push_back(*taken.costs);
      } catch (const Unavailable& error) {
        figures[i].skipped = error.what();
      }
    }
  }
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    if (!figures[i].skipped.empty()) continue;
    figures[i].median_us = quantile(figures[i].round_medians, 0.5);
    figures[i].p99_us = quantile(samples[i], 0.99);
    if (!costs[i].empty()) figures[i].costs = median_of(costs[i]);
  }
  return figures;
}

std::vector<Row> rows_of(const Row& head, const Figures& ours,
                         const std::vector<std::pair<std::string, Figures>>& peers) {
  Row own = head;
  if (ours.skipped.empty()) {
    own.ours_us = ours.median_us;
    own.p99_us = ours.p99_us;
    own.costs = ours.costs;
  }
  own.skipped = ours.skipped;
  if (peers.empty()) return {own};
  std::vector<Row> rows;
  for (const auto& [name, figures] : peers) {
    Row row = own;
    row.peer = name;
    if (!figures.skipped.empty()) {
      if (row.skipped.empty()) row.skipped = figures.skipped;
    } else {
      row.peer_us = figures.median_us;
      row.peer_p99_us = figures.p99_us;
      row.peer_costs = figures.costs;
      // A difference of two steps may come out at or below zero; then there is no ratio to speak of.
      if (row.ours_us && *row.ours_us > 0) row.ratio = figures.median_us / *row.ours_us;
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace retinue::bench
