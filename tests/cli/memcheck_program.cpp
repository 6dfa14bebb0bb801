// Ranks that run below valgrind: locks that they fight for, messages, collectives. With the argument "lose" each then
// loses a block of the heap.
#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <string>

#include "retinue/collective/communicator.h"
#include "retinue/collective/objects.h"
#include "retinue/ipc/lock.h"
#include "retinue/ipc/queue.h"
#include "retinue/ipc/shared_value.h"
#include "retinue/launch/runtime.h"

namespace {

constexpr int kRounds = 300;

void* volatile held = nullptr;

void lose_a_block() {
  held = std::malloc(1234);
  held = nullptr;
  fmt::print("lost\n");
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  const retinue::RankContext context = runtime.rank_context();
  retinue::Communicator group(context.world());
  retinue::Lock lock(nullptr);
  retinue::Array<long> count;
  retinue::Queue<std::string> names;
  if (group.rank() == 0) {
    lock = retinue::Lock::create();
    count = retinue::Array<long>(1);
    names = retinue::Queue<std::string>({.capacity = 64});
  }
  retinue::broadcast_object(group, lock, 0);
  retinue::broadcast_object(group, count, 0);
  retinue::broadcast_object(group, names, 0);
  for (int i = 0; i < kRounds; ++i) {
    const std::lock_guard guard(lock);
    count[0] += 1;
  }
  if (group.rank() != 0) names.put(fmt::format("rank {}", group.rank()));
  for (int i = 1; group.rank() == 0 && i < group.size(); ++i) fmt::print("{} is here\n", names.get());
  int sum = group.rank() + 1;
  group.all_reduce(std::span(&sum, 1));
  if (group.rank() == 0) fmt::print("counted {}, sum {}\n", count.get(0), sum);
  if (argc > 1 && argv[1] == std::string("lose")) lose_a_block();
}
