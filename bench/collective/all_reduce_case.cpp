#include "bench.h"
#include "collective/verified_sum.h"
#include "peer.h"
#include "retinue/collective/communicator.h"
#include "torch_contenders.h"

namespace retinue::bench {
namespace {

void core_all_reduce(RankContext& context, const Round& round) {
  Communicator group(context.world());
  const std::size_t count = round.bytes / sizeof(float);
  std::vector<float> own;
  float* data;
  if (round.buffer == Round::Buffer::kJob) {
    data = context.memory()->at<float>(context.memory()->allocate(round.bytes).offset);
  } else {
    own.resize(count);
    data = own.data();
  }
  measure_verified_sum(round, context, data, [&] { group.all_reduce(std::span(data, count)); });
}

/// Enough calls for a p99 where they are fast, few enough for a round within a second where they are slow.
int own_iterations(std::size_t bytes) {
  return bytes <= 65536 ? 2000 : bytes <= 1048576 ? 300 : 20;
}
int peer_iterations(std::size_t bytes) {
  return bytes <= 65536 ? 100 : bytes <= 1048576 ? 40 : 8;
}

Round round_of(std::size_t bytes, Round::Buffer buffer) {
  const int iterations = own_iterations(bytes);
  return {.warmups = iterations / 10, .iterations = iterations, .bytes = bytes, .buffer = buffer};
}

std::vector<Row> run_size(const Settings& settings, std::size_t bytes, const std::shared_ptr<Peer>& gloo) {
  std::vector<Contender> contenders;
  for (const auto buffer : {Round::Buffer::kPrivate, Round::Buffer::kJob}) {
    const std::string suffix = buffer == Round::Buffer::kJob ? "-job" : "-private";
    const Round round = round_of(bytes, buffer);
    contenders.push_back(spawned_collective<core_all_reduce>("core" + suffix, settings.ranks, round));
    contenders.push_back(c10d_all_reduce("c10d" + suffix, settings.ranks, round));
  }
  const std::size_t variants = contenders.size();
  if (settings.peers) {
    const int iterations = peer_iterations(bytes);
    contenders.push_back(
        peer_collective("gloo", gloo, fmt::format("all_reduce {} {} {}", bytes, iterations / 10 + 1, iterations)));
  }
  const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < variants; ++i) {
    std::vector<std::pair<std::string, Figures>> peers;
    if (settings.peers) peers.emplace_back("gloo", figures.back());
    const Row head = {
        .case_name = "all_reduce", .variant = contenders[i].name, .ranks = settings.ranks, .bytes = bytes};
    for (Row& row : rows_of(head, figures[i], peers)) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::vector<Row> run_all_reduce(const Settings& settings) {
  std::vector<std::size_t> sizes = settings.bytes;
  if (sizes.empty()) sizes = {4, 1 << 10, 1 << 16, 1 << 20, 1 << 24};
  const auto gloo = std::make_shared<Peer>("torch_gloo.py", settings.ranks);
  std::vector<Row> rows;
  for (const std::size_t bytes : sizes) {
    if (bytes == 0 || bytes % sizeof(float) != 0)
      throw std::invalid_argument(fmt::format("--bytes: {} is no multiple of 4", bytes));
    for (Row& row : run_size(settings, bytes, gloo)) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace retinue::bench
