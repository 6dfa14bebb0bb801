#include <fmt/format.h>

#include <filesystem>

#include "bench.h"
#include "build_facts.h"
#include "collective/data_ops.h"
#include "collective/mpi_peers.h"
#include "peer.h"
#include "torch_contenders.h"

namespace retinue::bench {
namespace {

/// A buffer of one rank: its own, or a block of job memory, which goes with the rank.
class RankBuffer {
 public:
  RankBuffer(const RankContext& context, Round::Buffer kind, std::size_t count) {
    if (count == 0) return;
    if (kind == Round::Buffer::kJob) {
      data_ = context.memory()->at<float>(context.memory()->allocate(count * sizeof(float)).offset);
    } else {
      own_.resize(count);
      data_ = own_.data();
    }
  }
  float* data() const { return data_; }

 private:
  std::vector<float> own_;
  float* data_ = nullptr;
};

void core_rank(RankContext& context, const DataRound& round) {
  const DataOp& op = data_op(round.op);
  Communicator group(context.world());
  const std::size_t count = round.bytes / sizeof(float);
  const std::size_t inputs = op.inputs_of(context.rank(), context.world_size());
  const std::size_t outputs = op.outputs_of(context.rank(), context.world_size());
  // In place there is one buffer, even of a rank that only gives or only takes.
  const RankBuffer output(context, round.buffer, count * (op.is_in_place ? 1 : outputs));
  const RankBuffer input(context, round.buffer, op.is_in_place ? 0 : count * inputs);
  const Buffers buffers = {
      .input = op.is_in_place ? output.data() : input.data(), .output = output.data(), .count = count};
  measure_verified(
      op, round, context, buffers,
      [&] {
        if (op.leaves_early) group.barrier();
      },
      [&] { op.call(group, buffers); });
}

struct Peers {
  std::shared_ptr<Peer> gloo;       ///< Null: it doesn't have the collective.
  std::shared_ptr<Peer> deepspeed;  ///< The same.
  std::vector<NamedPeer> mpis;
};

/// Enough calls for a p99 where they are fast, few enough for a round within a second where they are slow.
int own_iterations(std::size_t bytes, const Settings& settings) {
  if (settings.calls != 0) return settings.calls;
  if (settings.beside_busy) return bytes <= 4096 ? 100'000 : bytes <= 65536 ? 20'000 : 1000;
  return bytes <= 65536 ? 2000 : bytes <= 1048576 ? 300 : bytes <= 16777216 ? 20 : 8;
}
/// Of peers whose calls take many times as long: gloo's, and others' for large buffers or more ranks than CPUs.
int slow_iterations(std::size_t bytes, const Settings& settings) {
  if (settings.calls != 0) return settings.calls;
  if (settings.beside_busy) return bytes <= 65536 ? 2000 : 500;
  return bytes <= 65536 ? 100 : bytes <= 1048576 ? 40 : bytes <= 16777216 ? 8 : 5;
}
TimesOf times_of(const DataOp& op, const Settings& settings) {
  return settings.beside_busy ? &time_of_round : times_of(op, settings.ranks);
}

std::string command_of(const DataOp& op, std::size_t bytes, int iterations) {
  return fmt::format("{} {} {} {}", op.name, bytes, iterations / 10 + 1, iterations);
}

std::vector<Contender> own_contenders(const DataOp& op, const Settings& settings, std::size_t bytes) {
  const int ranks = settings.ranks;
  const TimesOf times = times_of(op, settings);
  std::vector<Contender> contenders;
  for (const auto buffer : {Round::Buffer::kPrivate, Round::Buffer::kJob}) {
    const std::string suffix = buffer == Round::Buffer::kJob ? "-job" : "-private";
    const int iterations = own_iterations(bytes, settings);
    DataRound round;
    round.warmups = iterations / 10;
    round.iterations = iterations;
    round.bytes = bytes;
    round.buffer = buffer;
    round.op = op.name;
    contenders.push_back({"core" + suffix, [=] { return times(measure_round<core_rank>(ranks, round)); }});
    if (op.is_in_c10d) contenders.push_back(c10d_data_op("c10d" + suffix, ranks, round, times));
  }
  return contenders;
}

std::vector<Row> run_size(const DataOp& op, const Settings& settings, std::size_t bytes, const Peers& others) {
  std::vector<Contender> contenders = own_contenders(op, settings, bytes);
  const std::size_t variants = contenders.size();
  const TimesOf times = times_of(op, settings);
  const std::string slow_command = command_of(op, bytes, slow_iterations(bytes, settings));
  if (others.gloo) contenders.push_back(peer_collective("gloo", others.gloo, slow_command, times));
  const bool is_slow = settings.ranks > usable_cpus() || bytes > 1048576;
  const std::string command = is_slow ? slow_command : command_of(op, bytes, own_iterations(bytes, settings));
  if (others.deepspeed) contenders.push_back(peer_collective("deepspeed", others.deepspeed, command, times));
  for (const auto& [name, peer] : others.mpis)
    contenders.push_back({name, [=, peer = peer] { return times(spans_of_ranks(*peer, command)); }});
  const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < variants; ++i) {
    std::vector<std::pair<std::string, Figures>> peers;
    for (std::size_t peer = variants; peer < contenders.size(); ++peer)
      peers.emplace_back(contenders[peer].name, figures[peer]);
    const Row head = {.case_name = op.name, .variant = contenders[i].name, .ranks = settings.ranks, .bytes = bytes};
    for (Row& row : rows_of(head, figures[i], peers)) rows.push_back(std::move(row));
  }
  return rows;
}

/// DeepSpeed's op, its ranks ended with this program: they may be spinning for each other then. Started, they import
/// PyTorch, which counts for the first answer.
PeerProgram deepspeed_program() {
  const std::string op = source_folder() + "/.retinue/venv-peer-deepspeed/op/deepspeed_shm_comm.so";
  PeerProgram program = torch_peer("deepspeed_shm.py");
  if (!std::filesystem::exists(op)) program.missing = "no deepspeed: run make peers";
  const std::string setpriv[] = {"/usr/bin/setpriv", "--pdeathsig", "TERM"};
  program.arguments.insert(program.arguments.begin(), std::begin(setpriv), std::end(setpriv));
  program.environment = {"DEEPSPEED_OP=" + op, "OMP_NUM_THREADS=1"};
  program.answer_limit = std::chrono::minutes(1);
  return program;
}

Peers peers_of(const DataOp& op, int ranks) {
  Peers others;
  if (op.is_in_c10d) others.gloo = std::make_shared<Peer>("torch_gloo.py", ranks);
  if (op.name == std::string("all_reduce")) others.deepspeed = std::make_shared<Peer>(deepspeed_program(), ranks);
  others.mpis = mpi_peers(op.name, ranks);
  return others;
}

std::vector<Row> run_data_op(const DataOp& op, const Settings& settings) {
  std::vector<std::size_t> sizes = settings.bytes;
  if (sizes.empty()) sizes = {4, 1 << 10, 1 << 12, 1 << 16, 1 << 20, 1 << 24};
  const Peers others = settings.peers ? peers_of(op, settings.ranks) : Peers();
  std::vector<Row> rows;
  for (const std::size_t bytes : sizes) {
    if (bytes == 0 || bytes % sizeof(float) != 0)
      throw std::invalid_argument(fmt::format("--bytes: {} is not a multiple of 4", bytes));
    for (Row& row : run_size(op, settings, bytes, others)) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::vector<std::pair<std::string, Case>> data_cases() {
  std::vector<std::pair<std::string, Case>> cases;
  for (const DataOp& op : data_ops())
    cases.emplace_back(op.name, [&op](const Settings& settings) { return run_data_op(op, settings); });
  return cases;
}

}  // namespace retinue::bench
