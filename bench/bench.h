#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// What all cases of retinue-bench share: who is measured, how rounds interleave, what a row of the result is.
namespace retinue::bench {

struct Settings {
  int ranks = 2;
  std::vector<std::size_t> bytes;  ///< Sizes of buffers; empty: the case's own list.
  bool peers = false;              ///< Measure the peers in the same run.
  int rounds = 7;
  int calls = 0;             ///< Of a rank in a round; 0: the case's own number. Of barrier and collectives.
  bool beside_busy = false;  ///< An unrelated program uses a CPU: rounds span many of its turns, see time_of_round().
};

/// What a process spent on one iteration, besides time.
struct Costs {
  double cpu_us = 0;
  double page_faults = 0;
  double memory_mb = 0;  ///< Of memory that processes share, their share of it. Units: 10^6 bytes.
};

/// One line of the result; a figure that is absent was not measured.
struct Row {
  std::string case_name;
  std::string variant;
  int ranks = 0;
  std::size_t bytes = 0;
  std::optional<double> ours_us = std::nullopt;
  std::optional<double> p99_us = std::nullopt;
  std::string peer = "";  ///< Empty: no peer was asked for.
  std::optional<double> peer_us = std::nullopt;
  std::optional<double> peer_p99_us = std::nullopt;
  std::optional<double> ratio = std::nullopt;
  std::optional<Costs> costs = std::nullopt;
  std::optional<Costs> peer_costs = std::nullopt;
  std::optional<double> switches = std::nullopt;  ///< Context switches of ours: of a rank in a call.
  std::string skipped = "";                       ///< Why a figure is absent.
};

/// Thrown by a contender that cannot run here; the others go on.
class Unavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What one round gave. Units: microseconds.
struct Samples {
  Samples(std::vector<double> times) : us(std::move(times)) {}

  std::vector<double> us;
  std::optional<Costs> costs = std::nullopt;
};

/// One of those that are measured side by side.
struct Contender {
  std::string name;
  /// Runs one round and returns its samples. Errors: Unavailable; any other ends the bench.
  std::function<Samples()> round;
};

struct Figures {
  double median_us = 0;                       ///< Median of the rounds' medians.
  double p99_us = 0;                          ///< Over the samples of all rounds.
  std::vector<double> round_medians;          ///< By round, so that contenders can be subtracted round by round.
  std::optional<Costs> costs = std::nullopt;  ///< Medians of the rounds.
  std::string skipped;
};

double quantile(std::vector<double> values, double q);

/// Runs one round of each contender in turn, `rounds` times, each time beginning with the next one.
std::vector<Figures> run_interleaved(const std::vector<Contender>& contenders, int rounds);

/// A case's rows for one variant: one without peers, else one for each.
std::vector<Row> rows_of(const Row& head, const Figures& ours,
                         const std::vector<std::pair<std::string, Figures>>& peers);

/// The CPUs that this program may use.
int usable_cpus();

/// Measures one case.
using Case = std::function<std::vector<Row>(const Settings&)>;

/// A case for each collective that moves data, by name.
std::vector<std::pair<std::string, Case>> data_cases();
std::vector<Row> run_spawn(const Settings& settings);
std::vector<Row> run_barrier(const Settings& settings);
std::vector<Row> run_bounds(const Settings& settings);
std::vector<Row> run_checkpoint(const Settings& settings);
std::vector<Row> run_ddp(const Settings& settings);
std::vector<Row> run_train(const Settings& settings);
std::vector<Row> run_init(const Settings& settings);
std::vector<Row> run_loader(const Settings& settings);
std::vector<Row> run_launch(const Settings& settings);
std::vector<Row> run_tee(const Settings& settings);
std::vector<Row> run_diagnosis(const Settings& settings);
std::vector<Row> run_failure(const Settings& settings);
std::vector<Row> run_peer_lost(const Settings& settings);
std::vector<Row> run_pool(const Settings& settings);
std::vector<Row> run_queue(const Settings& settings);
std::vector<Row> run_recorder(const Settings& settings);
std::vector<Row> run_scale(const Settings& settings);

}  // namespace retinue::bench
