#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>

#include "bench.h"
#include "retinue/collective/communicator.h"
#include "retinue/launch/spawn.h"
#include "samples.h"

/// From a rank's death, in the midst of its computation, to the last of the others that catches PeerLost in a barrier.
namespace retinue::bench {
namespace {

struct Loss {
  std::uint64_t times_offset = 0;  ///< A RankTimes for each rank, in job memory.
  std::uint64_t bytes = 0;         ///< That the rank holds of its own memory when it dies.
  bool parked = false;             ///< The others sleep; otherwise they spin, or yield where ranks outnumber CPUs.

  template <class Archive>
  void serialize(Archive& archive) {
    archive(times_offset, bytes, parked);
  }
};

struct RankTimes {
  std::atomic<std::int64_t> waits_from;
  std::int64_t end;  ///< Rank 0: before its death. The others: when they caught the error.
  pid_t pid;
};

/// Whether the process sleeps in the kernel.
bool sleeps(pid_t pid) {
  std::string line;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), line);
  return line.find(") S ") != std::string::npos;
}

/// All of it touched.
void hold(std::size_t bytes) {
  if (bytes == 0) return;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Unavailable(fmt::format("{} bytes of memory for a rank to hold", bytes));
  std::memset(memory, 1, bytes);
}

void await_others(const RankTimes* times, int ranks, bool parked) {
  constexpr std::int64_t kSpinning = 200'000;  // Long enough to wait by now, short enough not to park yet.
  for (int rank = 1; rank < ranks; ++rank) {
    while (times[rank].waits_from.load() == 0) std::atomic_signal_fence(std::memory_order_seq_cst);
    if (parked)
      while (!sleeps(times[rank].pid)) usleep(100);
    else
      while (now_ns() < times[rank].waits_from.load() + kSpinning) std::atomic_signal_fence(std::memory_order_seq_cst);
  }
}

void lose(RankContext& context, const Loss& loss) {
  // The guardian asks the others to end, too: they have to see the error first.
  std::signal(SIGTERM, SIG_IGN);
  auto* const times = context.memory()->at<RankTimes>(loss.times_offset);
  RankTimes& own = times[context.rank()];
  own.pid = getpid();
  if (context.rank() == 0) hold(loss.bytes);
  Communicator group(context.world(), {.waiting = loss.parked ? Waiting::kPolite : Waiting::kLatency});
  group.barrier();
  if (context.rank() == 0) {
    await_others(times, context.world_size(), loss.parked);
    own.end = now_ns();
    raise(SIGKILL);
  }
  own.waits_from = now_ns();
  try {
    group.barrier();
  } catch (const PeerLost&) {
    own.end = now_ns();
  }
}

double lost_us(int ranks, Loss loss) {
  JobMemory& memory = *Runtime::current().memory();
  const BlockHandle block = memory.allocate(sizeof(RankTimes) * static_cast<std::size_t>(ranks));
  auto* const times = memory.at<RankTimes>(block.offset);
  std::memset(static_cast<void*>(times), 0, block.bytes);
  loss.times_offset = block.offset;
  try {
    spawn<lose>({.nprocs = ranks}, loss);
  } catch (const ProcessException&) {
    // Of rank 0.
  }
  const std::int64_t death = times[0].end;
  std::int64_t last = death;
  bool all = death != 0;
  for (int rank = 1; rank < ranks; ++rank) {
    all = all && times[rank].end != 0;
    last = std::max(last, times[rank].end);
  }
  memory.release(block);
  if (!all) throw std::logic_error("peer_lost: a rank did not catch PeerLost");
  return static_cast<double>(last - death) / 1000;
}

Contender contender(int ranks, bool parked, bool much) {
  const Loss loss = {.bytes = much ? std::size_t{1} << 30 : 0, .parked = parked};
  const std::string name = parked ? "parked" : ranks > usable_cpus() ? "yielding" : "spinning";
  return {much ? name + "-1GiB" : name, [=] {
            std::vector<double> samples;
            for (int i = 0; i < (much ? 3 : 30); ++i) samples.push_back(lost_us(ranks, loss));
            return samples;
          }};
}

}  // namespace

std::vector<Row> run_peer_lost(const Settings& settings) {
  if (settings.ranks < 2) throw std::invalid_argument("peer_lost: needs two ranks");
  std::vector<Contender> contenders;
  for (const bool much : {false, true})
    for (const bool parked : {false, true}) contenders.push_back(contender(settings.ranks, parked, much));
  const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < contenders.size(); ++i)
    for (Row& row :
         rows_of({.case_name = "peer_lost", .variant = contenders[i].name, .ranks = settings.ranks}, figures[i], {}))
      rows.push_back(std::move(row));
  return rows;
}

}  // namespace retinue::bench
