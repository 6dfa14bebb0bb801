#include "torch_contenders.h"

namespace retinue::bench {
namespace {

constexpr std::size_t kDefaultBytes = std::size_t{1} << 30;
constexpr int kSaves = 1;  // In a round: disks are unsteady, so contenders alternate.
constexpr int kStepsBesideSaves = 20;

Contender saves(const Settings& settings, std::size_t bytes, CheckpointRound::Mode mode) {
  CheckpointRound round;
  round.iterations = kSaves;
  round.bytes = bytes;
  round.mode = mode;
  return {"", [=, ranks = settings.ranks] { return whole_times(checkpoint_spans(ranks, round)); }};
}

Contender steps(const Settings& settings, CheckpointRound::Mode mode) {
  CheckpointRound round;
  round.warmups = 3;
  round.iterations = kStepsBesideSaves;
  round.mode = mode;
  return {"", [=, ranks = settings.ranks] { return mean_times(checkpoint_spans(ranks, round)); }};
}

Row head_of(const Settings& settings, const char* variant, std::size_t bytes) {
  return {.case_name = "checkpoint", .variant = variant, .ranks = settings.ranks, .bytes = bytes};
}

}  // namespace

std::vector<Row> run_checkpoint(const Settings& settings) {
  using Mode = CheckpointRound::Mode;
  std::vector<Row> rows;
  for (const std::size_t bytes : settings.bytes.empty() ? std::vector<std::size_t>{kDefaultBytes} : settings.bytes) {
    const std::vector<Figures> figures = run_interleaved(
        {saves(settings, bytes, Mode::kSave), saves(settings, bytes, Mode::kPlainFiles)}, settings.rounds);
    for (Row& row : rows_of(head_of(settings, "save", bytes), figures[0], {{"a plain file of each rank", figures[1]}}))
      rows.push_back(std::move(row));
  }
  const std::vector<Figures> figures =
      run_interleaved({steps(settings, Mode::kStepSaving), steps(settings, Mode::kStep)}, settings.rounds);
  // Parameters, and two tensors of AdamW for each.
  const std::size_t bytes = 3 * kNets[kNetOfCheckpoints].bytes();
  for (Row& row : rows_of(head_of(settings, "step-saving", bytes), figures[0], {{"without a save", figures[1]}}))
    rows.push_back(std::move(row));
  return rows;
}

}  // namespace retinue::bench
