// Work through queues: the program puts numbers, ranks square them, and one of the ranks dies at it.
// [includes]
#include <fmt/format.h>
#include <poll.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "retinue/ipc/pipe.h"
#include "retinue/ipc/published.h"
#include "retinue/ipc/queue.h"
#include "retinue/ipc/simple_queue.h"
#include "retinue/launch/guest.h"
#include "retinue/launch/process.h"
#include "retinue/launch/spawn.h"
// [/includes]

namespace {

// [worker]
struct Square {
  std::uint64_t number;
  std::uint64_t square;
};

constexpr std::uint64_t kNone = 1000;

void work(int, std::uint64_t deadly, retinue::Queue<std::uint64_t> numbers, retinue::Queue<Square> squares) {
  try {
    for (;;) {
      const std::uint64_t number = numbers.get();
      if (number == deadly) raise(SIGKILL);  // With a number in hand.
      squares.put({number, number * number});
      numbers.task_done();
    }
  } catch (const retinue::Closed&) {
    // All numbers are done.
  }
}
// [/worker]

void tell(retinue::Queue<std::string> lines) {
  lines.put("it is there");
}

void measure(retinue::SimpleQueue<std::vector<float>> steps) {
  for (int i = 0; i < 1000; ++i) steps.put(std::vector<float>(100, static_cast<float>(i)));
}

// [fragile]
/// Some texts kill it.
void read_texts(retinue::Queue<std::string> texts) {
  try {
    for (;;) {
      if (texts.get() == "poison") raise(SIGKILL);
      texts.task_done();
    }
  } catch (const retinue::Closed&) {
    // All texts are done.
  }
}
// [/fragile]

// [guest]
/// In any process of the same user, without a Runtime.
void visit(const std::string& job) {
  retinue::join_job(job);  // Its id or its name, as `retinue ps` has them.
  auto notes = retinue::published<retinue::SimpleQueue<std::string>>("notes", std::chrono::seconds(10));
  notes.put("greetings from outside");
}
// [/guest]

// [square_root]
void take_roots(retinue::Connection<double> end) {
  try {
    for (;;) end.send(std::sqrt(end.recv()));
  } catch (const retinue::Closed&) {
    // Nobody asks any more.
  }
}
// [/square_root]

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "visit") {
    visit(argv[2]);
    return 0;
  }
  retinue::Runtime runtime(argc, argv);

  // [pool]
  retinue::Queue<std::uint64_t> numbers(
      {.capacity = 16, .on_consumer_death = retinue::OnConsumerDeath::kRedeliver, .joinable = true});
  retinue::Queue<Square> squares({.capacity = 64});
  for (std::uint64_t number = 0; number < 10; ++number) numbers.put(number);

  // Two calls, so that the death of one rank does not end the other.
  auto first = retinue::spawn<work>({.nprocs = 1, .join = false}, 3, numbers, squares);
  first.wait();  // It died with 3 in hand.
  auto second = retinue::spawn<work>({.nprocs = 1, .join = false}, kNone, numbers, squares);
  numbers.join();   // Until every number is done.
  numbers.close();  // The rank's get() throws Closed.
  second.wait();
  // [/pool]

  std::set<std::uint64_t> seen;
  while (const auto square = squares.try_get())
    if (square->square == square->number * square->number) seen.insert(square->number);
  fmt::print("squares: {} of 10, lost: {}\n", seen.size(), numbers.lost());

  // [dead_letters]
  retinue::Queue<std::string> dead_letters({.capacity = 16});
  retinue::Queue<std::string> texts({.capacity = 16,
                                     .on_consumer_death = retinue::OnConsumerDeath::kRedeliver,
                                     .joinable = true,
                                     .max_deliveries = 2,
                                     .dead_letters = dead_letters});
  for (const char* text : {"one", "poison", "two"}) texts.put(text);
  std::optional<retinue::Process<read_texts>> reader;
  std::optional<std::string> letter;
  while (!letter) {
    if (!reader || !reader->is_alive()) reader.emplace(texts).start();  // In place of one that died.
    pollfd entries[] = {{reader->sentinel(), POLLIN, 0}, {dead_letters.descriptor(), POLLIN, 0}};
    poll(entries, 2, 10'000);
    letter = dead_letters.try_get();
  }
  texts.join();  // The others are done.
  texts.close();
  reader->join();
  // [/dead_letters]
  fmt::print("dead letter: {}\n", *letter);

  // [sender]
  retinue::Queue<std::string> lines({.capacity = 4});
  retinue::Process<tell> sender(lines);
  sender.start();
  sender.join();  // The sender is gone; what it put is not.
  fmt::print("{}\n", lines.get());
  // [/sender]

  // [simple]
  auto steps = retinue::SimpleQueue<std::vector<float>>::create();
  retinue::Process<measure> meter(steps);
  meter.start();
  meter.join();  // It has put a thousand rows, and is gone.
  std::size_t rows = 0;
  for (; !steps.empty(); ++rows) steps.get();
  // [/simple]
  fmt::print("rows: {}\n", rows);

  // [pipe]
  auto [here, there] = retinue::Pipe<double>::create();
  retinue::Process<take_roots> helper(std::move(there));  // Only the helper has that end now.
  helper.start();
  here.send(2.25);
  pollfd entry{here.descriptor(), POLLIN, 0};  // Among others, in an event loop.
  poll(&entry, 1, 10'000);
  const std::optional<double> root = here.recv(std::chrono::seconds(10));
  here.close();  // The helper's recv() throws Closed.
  helper.join();
  // [/pipe]
  fmt::print("root: {}\n", root.value_or(0));

  // [publish]
  auto notes = retinue::SimpleQueue<std::string>::create();
  retinue::publish("notes", notes);
  const std::string command = fmt::format("'{}' visit {}", argv[0], runtime.job_id());
  // [/publish]
  if (std::system(command.c_str()) != 0) return 1;
  fmt::print("{}\n", notes.get());
  return seen.size() == 10 ? 0 : 1;
}
