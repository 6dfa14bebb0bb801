// A pool of workers: map, futures, results as they come, an initializer, and a worker that dies.
// [includes]
#include "retinue/launch/pool.h"

#include <fmt/format.h>

#include <csignal>
#include <numeric>
#include <ranges>
#include <stdexcept>
#include <string>
#include <vector>

#include "retinue/launch/spawn.h"
// [/includes]

namespace {

// [functions]
int count_primes_below(int limit) {
  int count = 0;
  for (int number = 2; number < limit; ++number) {
    bool is_prime = true;
    for (int divisor = 2; is_prime && divisor * divisor <= number; ++divisor) is_prime = number % divisor != 0;
    count += is_prime ? 1 : 0;
  }
  return count;
}

std::vector<std::string> vocabulary;  // Each worker has its own.

void load_vocabulary(const std::string& first, const std::string& second) {
  vocabulary = {first, second};
}

std::string word_at(std::size_t index) {
  if (index >= vocabulary.size()) throw std::out_of_range(fmt::format("there is no word {}", index));
  return vocabulary[index];
}
// [/functions]

int crash_at(int number, int deadly) {
  if (number == deadly) raise(SIGKILL);
  return number;
}

// [server]
int weights = 0;

int predict(int input) {
  return input * weights;
}

void serve(retinue::RankContext& context) {
  weights = context.rank() + 10;  // As of a model that took long to load.
  context.serve_calls();          // Until the caller ends the calls.
}
// [/server]

int sum(const std::vector<int>& values) {
  return std::accumulate(values.begin(), values.end(), 0);
}

int show_words() {
  // [initializer]
  retinue::Pool pool({.processes = 2, .initializer = retinue::initializer<load_vocabulary>("ape", "bee")});
  const std::vector<std::string> words = pool.map<word_at>({0, 1, 1, 0});
  try {
    pool.map<word_at>({0, 7, 1});
  } catch (const retinue::ProcessRaisedException& error) {
    fmt::print("{}: {}\n", error.outcome().type, error.outcome().message);  // what() has the stack
  }
  // [/initializer]
  fmt::print("{}\n", fmt::join(words, " "));
  return static_cast<int>(words.size());
}

int show_death() {
  // [death]
  retinue::Pool pool({.processes = 2});
  const retinue::Future<int> good = pool.apply_async<crash_at>(1, 3);
  const retinue::Future<int> bad = pool.apply_async<crash_at>(3, 3);
  try {
    bad.get();
  } catch (const retinue::ProcessExitedException& error) {
    fmt::print("lost: its worker was killed by {}\n", error.signal_name());  // what() names worker and pid
  }
  fmt::print("{} and, by the new worker or the other one, {}\n", good.get(), pool.apply<crash_at>(2, 3));
  // [/death]
  return good.get();
}

int show_calls() {
  // [calls]
  auto ranks = retinue::spawn<serve>({.nprocs = 2, .join = false});
  const auto first = ranks.call<predict>(0, 3);
  const auto second = ranks.call<predict>(1, 3);
  fmt::print("{} and {}\n", first.get(), second.get());
  ranks.end_calls();  // serve_calls() returns in the ranks.
  ranks.join();
  // [/calls]
  return first.get() + second.get();
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);

  // [map]
  retinue::Pool pool({.processes = 2});
  const std::vector<int> counts = pool.map<count_primes_below>({10, 100, 1000});
  fmt::print("{}\n", fmt::join(counts, ", "));

  const retinue::Future<int> later = pool.apply_async<count_primes_below>(10'000);
  // ... other work ...
  fmt::print("{}\n", later.get());
  // [/map]

  // [imap]
  std::vector<int> first;
  for (const int count : pool.imap<count_primes_below>(std::views::iota(0))) {  // Takes no more items than it needs.
    first.push_back(count);
    if (count == 4) break;
  }
  // [/imap]
  fmt::print("{}\n", fmt::join(first, " "));

  const bool is_right = sum(counts) == 4 + 25 + 168 && later.get() == 1229 && sum(first) == 15 && show_words() == 4 &&
                        show_death() == 1 && show_calls() == 63;
  return is_right ? 0 : 1;
}
