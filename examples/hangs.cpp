// Jobs that don't go on, and what they say: a rank that is late, ranks that wait for each other, and ranks whose data
// have become different.
#include <fmt/core.h>

// [includes]
#include <chrono>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "retinue/collective/communicator.h"
#include "retinue/collective/divergence.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"
// [/includes]

namespace {

using namespace std::chrono_literals;

void read_much_from_a_slow_disk() {
  std::this_thread::sleep_for(3s);
}

void be_late(retinue::RankContext& context) {
  // [late]
  retinue::Communicator group(context.world(), {.timeout = 5min, .late_after = 1500ms});
  group.barrier();
  if (group.rank() == 1) read_much_from_a_slow_disk();
  group.barrier();  // The others say on standard error who is missing, and what it does.
  // [/late]
}

/// Each wants the other's number first.
std::string swap_in_vain(retinue::Communicator& group) {
  const int own = group.rank();
  int other = -1;
  // [deadlock]
  try {
    group.recv(std::span(&other, 1), 1 - group.rank());
    group.send(std::span(&own, 1), 1 - group.rank());
  } catch (const retinue::CollectiveMismatch& error) {
    return error.what();  // "deadlock, none of these waits can end: rank 0 waits to receive ..."
  }
  // [/deadlock]
  throw std::logic_error("both received what nobody had sent");
}

void swap(retinue::Communicator& group) {
  const int own = group.rank();
  int other = -1;
  // [sendrecv]
  group.sendrecv(std::span(&own, 1), 1 - group.rank(), std::span(&other, 1), 1 - group.rank());
  // [/sendrecv]
  if (other != 1 - own) throw std::logic_error("another number came");
}

std::string wait_for_each_other(retinue::RankContext& context) {
  retinue::Communicator group(context.world());
  std::string text = swap_in_vain(group);
  retinue::Communicator fresh(context.world());  // After an error a group is of no use.
  swap(fresh);
  return text;
}

/// Noise that should have been the same on all ranks.
void add_noise(std::vector<float>& weights, unsigned seed) {
  std::mt19937 random(seed);
  for (float& weight : weights) weight += std::normal_distribution<float>(0, 0.1f)(random);
}

std::string drift_apart(retinue::RankContext& context) {
  retinue::Communicator group(context.world());
  std::vector<float> encoder(1000);
  std::vector<float> decoder(1000);
  try {
    // [divergence]
    retinue::DivergenceCheck check(group, {.every_n_steps = 10});
    for (int step = 0; step < 100; ++step) {
      add_noise(encoder, 1);
      add_noise(decoder, step < 50 ? 1 : static_cast<unsigned>(group.rank()));  // A mistake.
      const retinue::NamedBytes weights[] = {{"encoder", std::as_bytes(std::span(encoder))},
                                             {"decoder", std::as_bytes(std::span(decoder))}};
      check.step(weights);  // At step 50: "decoder" (4000 bytes) of rank 1 differs from that of rank 0
    }
    // [/divergence]
  } catch (const retinue::CollectiveMismatch& error) {
    return error.what();
  }
  throw std::logic_error("nobody noticed that the weights differ");
}

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  retinue::spawn<be_late>({.nprocs = 3});
  auto pair = retinue::spawn<wait_for_each_other>({.nprocs = 2, .join = false});
  const auto deadlock = pair.wait().value<std::string>(0);
  auto replicas = retinue::spawn<drift_apart>({.nprocs = 2, .join = false});
  const auto difference = replicas.wait().value<std::string>(1);
  if (!has(deadlock, "rank 0 waits to receive") || !has(deadlock, "rank 1 waits to receive")) return 1;
  if (!has(difference, "\"decoder\" (4000 bytes) of rank 1 differs")) return 1;
  fmt::print("hangs: ok, {}\n", deadlock);
}
