#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>

#include "bench.h"
#include "collective/data_ops.h"
#include "retinue/collective/communicator.h"
#include "samples.h"

/// What the machine allows at best, and how near to it all_reduce comes: in the column of the peer is the bound. So the
/// ratio is the share of the bound that is reached.
namespace retinue::bench {
namespace {

constexpr std::size_t kMuch = std::size_t{16} << 20;

/// How long a cache line takes there and back: two ranks write in turn what the other reads.
struct PingPong : Round {
  std::uint64_t words_offset = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    Round::serialize(archive);
    archive(words_offset);
  }
};

void answer(RankContext& context, const PingPong& round) {
  struct alignas(128) Word {
    std::atomic<std::int64_t> value;
  };
  auto* const words = context.memory()->at<Word>(round.words_offset);
  Word& own = words[context.rank()];
  const Word& other = words[1 - context.rank()];
  std::int64_t turn = 0;
  const auto nothing = [](int) {};
  measure_iterations(
      round, context, nothing,
      [&] {
        ++turn;
        if (context.rank() == 0) own.value.store(turn, std::memory_order_release);
        while (other.value.load(std::memory_order_acquire) < turn) std::atomic_signal_fence(std::memory_order_seq_cst);
        if (context.rank() == 1) own.value.store(turn, std::memory_order_release);
      },
      nothing);
}

Contender round_trip() {
  return {"line-round-trip", [] {
            if (usable_cpus() < 2) throw Unavailable("needs a CPU for each of two ranks");
            JobMemory& memory = *Runtime::current().memory();
            const BlockHandle block = memory.allocate(256);
            std::memset(memory.at(block.offset), 0, block.bytes);
            PingPong round;
            round.warmups = 500;
            round.iterations = 5000;
            round.words_offset = block.offset;
            const Spans spans = measure_round<answer>(2, round);
            memory.release(block);
            // Without the clock: from one store of rank 0 to the next, which is after the answer.
            std::vector<double> times;
            for (std::size_t i = 1; i < spans[0].size(); ++i)
              times.push_back(static_cast<double>(spans[0][i].exit - spans[0][i - 1].exit) / 1000);
            return times;
          }};
}

/// Each rank reads `bytes` bytes and writes as many, in place and by the same kernels, all at once: what all_reduce
/// comes to without the others.
void move_bytes(RankContext& context, const Round& round) {
  const std::size_t count = round.bytes / sizeof(float);
  auto* const data = context.memory()->at<float>(context.memory()->allocate(round.bytes).offset);
  Communicator group(context.world());
  const CollectiveCall doubles =
      CollectiveCall::all_reduce(data, count, Dtype::kFloat32, ReduceOp::kPremulSum).premultiplied(2);
  measure_iterations(
      round, context,
      [&](int i) {
        std::fill_n(data, count, static_cast<float>(i));
        group.barrier();
      },
      [&] { run_alone(doubles); },
      [&](int i) {
        if (std::count(data, data + count, 2 * static_cast<float>(i)) != static_cast<std::ptrdiff_t>(count))
          throw std::runtime_error("bounds: a wrong element");
      });
}

void all_reduce_rank(RankContext& context, const DataRound& round) {
  Communicator group(context.world());
  const std::size_t count = round.bytes / sizeof(float);
  auto* const data = context.memory()->at<float>(context.memory()->allocate(round.bytes).offset);
  const Buffers buffers = {.input = data, .output = data, .count = count};
  const DataOp& op = data_op(round.op);
  measure_verified(
      op, round, context, buffers, [&] { group.barrier(); }, [&] { op.call(group, buffers); });
}

Contender all_reduce(int ranks, std::size_t bytes, int iterations) {
  DataRound round;
  round.warmups = iterations / 10 + 1;
  round.iterations = iterations;
  round.bytes = bytes;
  round.buffer = Round::Buffer::kJob;
  round.op = "all_reduce";
  return {"all_reduce-job", [=] { return collective_times(measure_round<all_reduce_rank>(ranks, round)); }};
}

Contender bound_of_much(int ranks) {
  Round round;
  round.warmups = 3;
  round.iterations = 20;
  round.bytes = kMuch;
  return {"read-and-write", [=] { return collective_times(measure_round<move_bytes>(ranks, round)); }};
}

}  // namespace

std::vector<Row> run_bounds(const Settings& settings) {
  const int ranks = settings.ranks;
  const std::vector<Contender> contenders = {round_trip(), all_reduce(ranks, 4, 5000), bound_of_much(ranks),
                                             all_reduce(ranks, kMuch, 20)};
  const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
  std::vector<Row> rows;
  for (const std::size_t i : {std::size_t{1}, std::size_t{3}}) {
    const Row head = {
        .case_name = "bounds", .variant = contenders[i].name, .ranks = ranks, .bytes = i == 1 ? sizeof(float) : kMuch};
    for (Row& row : rows_of(head, figures[i], {{contenders[i - 1].name, figures[i - 1]}}))
      rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace retinue::bench
