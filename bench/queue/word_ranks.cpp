#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "bench.h"
#include "queue/bare_ring.h"
#include "queue/word_round.h"
#include "retinue/collective/communicator.h"

namespace retinue::bench {
namespace {

constexpr std::size_t kBareBytes = kQueueCapacity * sizeof(BareSlot);
constexpr int kProducerShift = 48;  // Of the bits that name a message's producer.
constexpr std::size_t kMostProducers = 16;

/// What a consumer got in one iteration.
class Received {
 public:
  void add(std::uint64_t word) {
    std::uint64_t& last = last_[word >> kProducerShift & (kMostProducers - 1)];
    is_ordered_ &= word > last;
    last = word;
    sum_ += word;
  }
  bool is_ordered() const { return is_ordered_; }
  std::uint64_t sum() const { return sum_; }

 private:
  std::uint64_t last_[kMostProducers] = {};
  std::uint64_t sum_ = 0;
  bool is_ordered_ = true;
};

std::uint64_t word_of(int producer, int iteration, int message, const WordRound& round) {
  const auto number = static_cast<std::uint64_t>((iteration + round.warmups) * round.messages + message + 1);
  return static_cast<std::uint64_t>(producer) << kProducerShift | number;
}

/// All ranks' sums, gathered: what the consumers got is what the producers put.
void check_sum(Communicator& group, const WordRound& round, int iteration, const Received& received) {
  if (!received.is_ordered()) throw std::runtime_error("queue: a message came twice or out of order");
  std::uint64_t sum = received.sum();
  group.all_reduce(std::span(reinterpret_cast<std::int64_t*>(&sum), 1));
  for (int producer = 0; producer < round.pairs; ++producer)
    for (int message = 0; message < round.messages; ++message) sum -= word_of(producer, iteration, message, round);
  if (sum != 0) throw std::runtime_error("queue: a message was lost or changed");
}

template <class Put, class Get>
void measure_flow(const RankContext& context, const WordRound& round, Put&& put, Get&& get) {
  Communicator group(context.world());
  const int rank = context.rank();
  Received received;
  int iteration = 0;
  measure_iterations(
      round, context,
      [&](int i) {
        iteration = i;
        received = {};
        group.barrier();
      },
      [&] {
        for (int message = 0; message < round.messages; ++message) {
          if (rank < round.pairs) {
            put(word_of(rank, iteration, message, round));
          } else {
            received.add(get());
          }
        }
      },
      [&](int i) { check_sum(group, round, i, received); });
}

void flow_rank(RankContext& context, const WordRound& round) {
  take_place(round.placement, context.rank());
  if (round.way == WordRound::Way::kBareRing) {
    BareRingSide side(round.bare.data(), kQueueCapacity);
    measure_flow(
        context, round, [&](std::uint64_t word) { side.put(word); }, [&] { return side.get(); });
    return;
  }
  Queue<std::uint64_t> queue = round.there;
  measure_flow(
      context, round, [&](std::uint64_t word) { queue.put(word); }, [&] { return queue.get(); });
}

/// A word that one process changes and another sleeps for.
struct alignas(64) Bell {
  std::atomic<std::uint32_t> count;

  void ring() {
    count.fetch_add(1);
    syscall(SYS_futex, &count, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
  void wait(std::uint32_t wanted) {
    while (count.load() != wanted) syscall(SYS_futex, &count, FUTEX_WAIT, wanted - 1, nullptr, nullptr, 0);
  }
};

/// `ask` sends a word and returns the answer, `answer` gets a word and sends the next higher one back.
template <class Ask, class Answer>
void measure_round_trips(const RankContext& context, const WordRound& round, Ask&& ask, Answer&& answer) {
  std::uint64_t sent = 0;
  std::uint64_t got = 0;
  measure_iterations(
      round, context, [&](int) { sent += 2; }, [&] { got = context.rank() == 0 ? ask(sent) : answer(); },
      [&](int) {
        if (got != sent + (context.rank() == 0 ? 1 : 0)) throw std::runtime_error("queue: a wrong answer came back");
      });
}

void round_trip_by_queue(const RankContext& context, const WordRound& round) {
  Queue<std::uint64_t> there = round.there;
  Queue<std::uint64_t> back = round.back;
  const auto ask = [&](std::uint64_t word) {
    there.put(word);
    return back.get();
  };
  const auto answer = [&] {
    const std::uint64_t word = there.get();
    back.put(word + 1);
    return word;
  };
  measure_round_trips(context, round, ask, answer);
}

void round_trip_by_bare_rings(const RankContext& context, const WordRound& round) {
  BareRingSide there(round.bare.data(), kQueueCapacity);
  BareRingSide back(round.bare.data() + kBareBytes, kQueueCapacity);
  const auto ask = [&](std::uint64_t word) {
    there.put(word);
    return back.get();
  };
  const auto answer = [&] {
    const std::uint64_t word = there.get();
    back.put(word + 1);
    return word;
  };
  measure_round_trips(context, round, ask, answer);
}

void round_trip_by_futex(const RankContext& context, const WordRound& round) {
  Bell* const bells = reinterpret_cast<Bell*>(round.bare.data());
  std::uint32_t count = 0;
  const auto ask = [&](std::uint64_t word) {
    bells[0].ring();
    bells[1].wait(++count);
    return word + 1;
  };
  const auto answer = [&] {
    bells[0].wait(++count);
    bells[1].ring();
    return std::uint64_t{count} * 2;
  };
  measure_round_trips(context, round, ask, answer);
}

void round_trip_rank(RankContext& context, const WordRound& round) {
  take_place(round.placement, context.rank());
  switch (round.way) {
    case WordRound::Way::kQueue:
      return round_trip_by_queue(context, round);
    case WordRound::Way::kBareRing:
      return round_trip_by_bare_rings(context, round);
    case WordRound::Way::kFutex:
      return round_trip_by_futex(context, round);
  }
}

void make_shared_things(WordRound& round) {
  if (round.way == WordRound::Way::kQueue) {
    round.there = Queue<std::uint64_t>({.capacity = kQueueCapacity});
    round.back = Queue<std::uint64_t>({.capacity = kQueueCapacity});
  } else {
    round.bare = SharedBlock::allocate(2 * kBareBytes);
    std::memset(round.bare.data(), 0, 2 * kBareBytes);
  }
}

}  // namespace

Spans word_flow_spans(WordRound round) {
  make_shared_things(round);
  return measure_round<flow_rank>(2 * round.pairs, round);
}

Spans word_round_trip_spans(WordRound round) {
  make_shared_things(round);
  return measure_round<round_trip_rank>(2, round);
}

}  // namespace retinue::bench
