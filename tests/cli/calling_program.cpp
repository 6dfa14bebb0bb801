// A program whose ranks make some calls, for commands that look at what they recorded; its words say which:
//   calls     three collectives in a whole and one in a part of the world, and messages, and then they wait
//   mismatch  one rank calls something else than the others, who then wait
//   dies      the last rank is killed while the others wait for it in an all_reduce; dies-as-rank: the same in ranks of
//             `retinue run`
//   waits     all ranks wait in an all_reduce for the last one, which never comes
//   steps     all_reduces without an end, each a step, to each of which rank 1 comes last, by 2 ms
// Prints "ready" for each rank that waits.
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "ipc/records/recorded_calls.h"
#include "retinue/collective/communicator.h"
#include "retinue/ipc/step_count.h"
#include "retinue/launch/spawn.h"

namespace {

void wait_for_a_look() {
  std::printf("ready\n");
  std::fflush(stdout);
  for (;;) pause();
}

void make_calls(const retinue::RankContext& context) {
  retinue::Communicator world(context.world());
  std::vector<float> values(100, 1);
  std::vector<float> parts(100 * static_cast<std::size_t>(context.world_size()));
  world.all_reduce(values.data(), values.size(), retinue::Dtype::kFloat32, retinue::ReduceOp::kSum);
  world.all_gather(values.data(), parts.data(), 400);
  if (context.rank() == 0) {
    world.send(std::as_bytes(std::span(values)), 1, 5);
    world.send(std::as_bytes(std::span(values)).first(8), 1, 6);
  } else if (context.rank() == 1) {
    world.recv(std::as_writable_bytes(std::span(parts)).first(8), 0, 6);
    world.recv(std::as_writable_bytes(std::span(parts)).first(400), retinue::kAnySource, retinue::kAnyTag);
  }
  if (context.rank() < 2) {
    retinue::JobGroup part = context.world();
    part.name += "/part";
    part.process_slots.resize(2);
    retinue::Communicator(part).barrier();
  }
  world.barrier();
  wait_for_a_look();
}

void mismatch(const retinue::RankContext& context) {
  retinue::Communicator world(context.world());
  retinue::JobGroup again = context.world();
  again.name += "/control";
  retinue::Communicator control(again);
  float value = 1;
  world.barrier();
  try {
    // Rank 1 comes when the others have begun theirs: who comes to a broken group makes no call.
    if (context.rank() == 1) {
      control.barrier();
      world.broadcast(&value, sizeof value, 0);
    } else {
      const retinue::Request begun = world.start(
          retinue::CollectiveCall::all_reduce(&value, 1, retinue::Dtype::kFloat32, retinue::ReduceOp::kSum));
      control.barrier();
      begun.wait();
    }
  } catch (const retinue::CollectiveMismatch&) {
    wait_for_a_look();
  }
}

void die(const retinue::RankContext& context) {
  retinue::Communicator world(context.world());
  float value = 1;
  world.barrier();
  if (context.rank() + 1 == context.world_size()) {
    for (int other = 0; other < context.rank(); ++other)
      while (!retinue::read_call(*context.world().memory,
                                 context.world().process_slots[static_cast<std::size_t>(other)], 2))
        sched_yield();
    raise(SIGKILL);
  }
  world.all_reduce(&value, 1, retinue::Dtype::kFloat32, retinue::ReduceOp::kSum);
}

void wait_in_a_call(const retinue::RankContext& context) {
  retinue::Communicator world(context.world());
  float value = 1;
  world.barrier();
  if (context.rank() + 1 == context.world_size()) wait_for_a_look();
  world.all_reduce(&value, 1, retinue::Dtype::kFloat32, retinue::ReduceOp::kSum);
}

void step(const retinue::RankContext& context) {
  retinue::Communicator world(context.world());
  std::vector<float> values(1000, 1);
  for (;; retinue::count_step()) {
    // No event: this rank is meant to be late.
    if (context.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    world.all_reduce(values.data(), values.size(), retinue::Dtype::kFloat32, retinue::ReduceOp::kMax);
  }
}

void run(retinue::RankContext& context, const std::string& what) {
  if (what == "calls") make_calls(context);
  if (what == "mismatch") mismatch(context);
  if (what == "dies") die(context);
  if (what == "waits") wait_in_a_call(context);
  if (what == "steps") step(context);
}

}  // namespace

int main(int argc, char** argv) {
  const retinue::Runtime runtime(argc, argv);
  const std::string what = argc > 1 ? argv[1] : "calls";
  const int ranks = argc > 2 ? std::stoi(argv[2]) : 2;
  if (what == "dies-as-rank") {
    die(runtime.rank_context());
    return 0;
  }
  try {
    retinue::spawn<run>({.nprocs = ranks}, what);
  } catch (const retinue::ProcessException& failure) {
    std::printf("%s\n", failure.what());
    return 1;
  } catch (const retinue::Error& error) {
    std::printf("%s\n", error.what());
    return 2;
  }
}
