#include <fmt/format.h>

#include <filesystem>

#include "bench.h"
#include "peer.h"
#include "queue/placement.h"
#include "queue/word_round.h"
#include "torch_contenders.h"

/// Messages from process to process: words of 8 bytes, and tensors.
namespace retinue::bench {
namespace {

namespace fs = std::filesystem;

using Way = WordRound::Way;
using Peers = std::vector<std::pair<std::string, std::shared_ptr<Peer>>>;

constexpr const char* kInBatches = "faster-fifo in batches";

PeerProgram boost_peer() {
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path() / "boost_queue_peer";
  if (!fs::exists(program))
    return {.name = "boost_queue_peer",
            .arguments = {},
            .missing = "built without Boost.Interprocess: run make peers and configure again"};
  return {.name = "boost_queue_peer", .arguments = {program.string()}};
}

PeerProgram with_argument(PeerProgram program, const std::string& argument) {
  if (program.missing.empty()) program.arguments.push_back(argument);
  return program;
}

Peers word_peers() {
  const auto make = [](PeerProgram program) { return std::make_shared<Peer>(std::move(program), 1); };
  Peers peers;
  for (const char* kind : {"SimpleQueue", "Queue"})
    peers.emplace_back(fmt::format("torch {}", kind), make(with_argument(torch_peer("queue_words.py"), kind)));
  for (const char* kind : {"faster-fifo", kInBatches})
    peers.emplace_back(kind, make(with_argument(package_peer("faster-fifo", "queue_words.py"), kind)));
  peers.emplace_back("Boost message_queue", make(boost_peer()));
  return peers;
}

/// The first contender is ours, the others are its peers.
std::vector<Row> measure(const Settings& settings, const Row& head, const std::vector<Contender>& contenders) {
  const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
  std::vector<std::pair<std::string, Figures>> peers;
  for (std::size_t i = 1; i < contenders.size(); ++i) peers.emplace_back(contenders[i].name, figures[i]);
  return rows_of(head, figures[0], peers);
}

/// Time of one message where many are under way.
std::vector<double> per_message(const Spans& spans, int messages) {
  std::vector<double> times = whole_times(spans);
  for (double& time : times) time /= messages;
  return times;
}

std::vector<Row> run_flow(const Settings& settings, const Peers& systems, WordRound round, int peer_messages) {
  const auto own = [&](const char* name, Way way) -> Contender {
    round.way = way;
    return {name, [round] { return per_message(word_flow_spans(round), round.pairs * round.messages); }};
  };
  std::vector<Contender> contenders = {own("", Way::kQueue)};
  if (settings.peers && round.pairs == 1) contenders.push_back(own("bare ring", Way::kBareRing));
  for (const auto& [name, peer] : systems) {
    const std::string command = fmt::format("flow {} {} 1 3", round.pairs, peer_messages);
    contenders.push_back({name, [peer = peer, command, messages = round.pairs * peer_messages] {
                            return per_message(spans_of_ranks(*peer, command), messages);
                          }});
  }
  const Row head = {.case_name = "queue",
                    .variant = fmt::format("word-{0}x{0}", round.pairs),
                    .ranks = 2 * round.pairs,
                    .bytes = sizeof(std::uint64_t)};
  return measure(settings, head, contenders);
}

std::vector<Row> run_round_trip(const Settings& settings, const Peers& systems, const char* variant, WordRound round) {
  const auto own = [&](const char* name, Way way) -> Contender {
    round.way = way;
    return {name, [round] { return times_of_rank(word_round_trip_spans(round), 0); }};
  };
  std::vector<Contender> contenders = {own("", Way::kQueue)};
  const bool sleeps = round.placement == Placement::kTogether;
  if (settings.peers) contenders.push_back(sleeps ? own("futex", Way::kFutex) : own("bare ring", Way::kBareRing));
  for (const auto& [name, peer] : systems) {
    if (name == kInBatches) continue;  // There is one message at a time.
    contenders.push_back(
        {name, [peer = peer] { return times_of_rank(spans_of_ranks(*peer, "round_trip 1 1 20 200"), 0); }});
  }
  return measure(settings, {.case_name = "queue", .variant = variant, .ranks = 2, .bytes = sizeof(std::uint64_t)},
                 contenders);
}

std::vector<Row> run_tensor(const Settings& settings, const char* variant, TensorRound round, const Peers& systems) {
  const auto times = [fresh = round.way != TensorRound::Way::kHandle](const Spans& spans) {
    return fresh ? one_way_times(spans) : times_of_rank(spans, 0);
  };
  std::vector<Contender> contenders = {{"", [=] { return times(tensor_queue_spans(round)); }}};
  if (settings.peers && round.placement == Placement::kTogether) {
    const WordRound futex{
        {.warmups = round.warmups, .iterations = round.iterations}, WordRound::Way::kFutex, Placement::kTogether};
    contenders.push_back({"futex", [futex] { return times_of_rank(word_round_trip_spans(futex), 0); }});
  }
  if (settings.peers && round.way == TensorRound::Way::kFresh) {
    TensorRound copy = round;
    for (const auto& [name, way] : {std::pair{"memcpy", TensorRound::Way::kCopy},
                                    std::pair{"memcpy to what was read", TensorRound::Way::kCopyRead}}) {
      copy.way = way;
      contenders.push_back({name, [copy] { return times_of_rank(tensor_queue_spans(copy), 0); }});
    }
  }
  const std::string command = fmt::format("{} {} {} {}", round.way == TensorRound::Way::kHandle ? "handle" : "fresh",
                                          round.bytes, round.iterations / 20 + 1, round.iterations / 10 + 5);
  for (const auto& [name, peer] : systems)
    contenders.push_back({name, [=, peer = peer] { return times(spans_of_ranks(*peer, command)); }});
  return measure(settings, {.case_name = "queue", .variant = variant, .ranks = 2, .bytes = round.bytes}, contenders);
}

void append(std::vector<Row>& rows, std::vector<Row> more) {
  for (Row& row : more) rows.push_back(std::move(row));
}

void run_words(const Settings& settings, std::vector<Row>& rows) {
  const Peers systems = settings.peers ? word_peers() : Peers();
  WordRound flow{{.warmups = 3, .iterations = 30}};
  flow.messages = 20000;
  append(rows, run_flow(settings, systems, flow, 5000));
  flow.pairs = 4;
  flow.messages = 25000;
  flow.iterations = 10;
  flow.warmups = 1;
  flow.placement = Placement::kFree;
  append(rows, run_flow(settings, systems, flow, 2000));
  WordRound trip{{.warmups = 500, .iterations = 5000}};
  append(rows, run_round_trip(settings, systems, "word-round-trip", trip));
  trip.placement = Placement::kTogether;
  append(rows, run_round_trip(settings, {}, "word-asleep", trip));
}

void run_tensors(const Settings& settings, std::vector<Row>& rows) {
  Peers systems;
  for (const char* kind : {"SimpleQueue", "Queue"})
    if (settings.peers)
      systems.emplace_back(fmt::format("torch {}", kind),
                           std::make_shared<Peer>(with_argument(torch_peer("queue_tensors.py"), kind), 1));
  TensorRound round;
  round.warmups = 500;
  round.iterations = 5000;
  round.bytes = 4096;
  append(rows, run_tensor(settings, "tensor-handle", round, systems));
  round.placement = Placement::kTogether;
  append(rows, run_tensor(settings, "tensor-handle-asleep", round, {}));
  round.placement = Placement::kOneEach;
  round.way = TensorRound::Way::kFresh;
  for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{64} << 20}) {
    round.bytes = bytes;
    round.iterations = bytes > (std::size_t{1} << 20) ? 10 : 100;
    round.warmups = 5;
    append(rows, run_tensor(settings, "tensor-fresh", round, systems));
  }
}

}  // namespace

std::vector<Row> run_queue(const Settings& settings) {
  const TwoCpus two_cpus;
  std::vector<Row> rows;
  run_words(settings, rows);
  run_tensors(settings, rows);
  return rows;
}

}  // namespace retinue::bench
