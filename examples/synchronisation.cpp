// Locks, conditions and barriers between the processes of a job.
// [includes]
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <mutex>

#include "retinue/ipc/barrier.h"
#include "retinue/ipc/condition.h"
#include "retinue/ipc/event.h"
#include "retinue/ipc/lock.h"
#include "retinue/ipc/semaphore.h"
#include "retinue/ipc/shared_value.h"
#include "retinue/launch/process.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"
// [/includes]

using namespace std::chrono_literals;

// [lock]
void count(int /*rank*/, retinue::Lock lock, const retinue::Array<long>& sums) {
  for (int i = 0; i < 1000; ++i) {
    const std::lock_guard guard(lock);
    sums[0] += 1;
    sums[1] += i;
  }
}

void count_together() {
  const retinue::Array<long> sums(2);
  retinue::spawn<count>({.nprocs = 4}, retinue::Lock(), sums);
  fmt::print("{} steps, sum {}\n", sums.get(0), sums.get(1));
}
// [/lock]

// [value]
void add(int rank, const retinue::Value<int>& total) {
  total.update([&](int& value) { value += rank; });
}

void add_up() {
  const retinue::Value<int> total(0);
  retinue::spawn<add>({.nprocs = 4}, total);
  fmt::print("total {}\n", total.get());
}
// [/value]

// [owner_died]
struct Account {
  long paid_in;
  long balance;
};

void pay_in(const retinue::Value<Account>& account) {
  const std::lock_guard guard(account.get_lock());
  account.get_obj().paid_in += 10;
  raise(SIGKILL);  // In the middle: the balance is not yet changed.
}

void repair() {
  const retinue::Value<Account> account({0, 0});
  retinue::Process<pay_in> victim(account);
  victim.start();
  victim.join();
  const std::lock_guard guard(account.get_lock());
  if (account.get_lock().owner_died()) account.get_obj().balance = account.get_obj().paid_in;
  fmt::print("paid in {}, balance {}\n", account.get_obj().paid_in, account.get_obj().balance);
}
// [/owner_died]

// [condition]
void consume(retinue::Condition changed, const retinue::Value<int>& stock) {
  const std::lock_guard guard(changed);
  const bool came = changed.wait_for([&] { return stock.get() >= 3; }, 30s);
  fmt::print("stock {}, {}\n", stock.get(), came ? "enough" : "too late");
}

void produce() {
  retinue::Condition changed;
  const retinue::Value<int> stock(0);
  retinue::Process<consume> consumer(changed, stock);
  consumer.start();
  for (int i = 0; i < 3; ++i) {
    const std::lock_guard guard(changed);
    stock.set(stock.get() + 1);
    changed.notify_all();
  }
  consumer.join();
}
// [/condition]

// [barrier]
void step(int rank, retinue::Barrier barrier, const retinue::Array<int>& parts, const retinue::Value<int>& sum) {
  parts.set(static_cast<std::size_t>(rank), rank * rank);
  barrier.wait([&] {  // In one of them, when all have come.
    for (const int part : parts.values()) sum.set(sum.get() + part);
  });
  if (rank == 0) fmt::print("sum of squares {}\n", sum.get());
}

void step_together() {
  retinue::spawn<step>({.nprocs = 4}, retinue::Barrier(4), retinue::Array<int>(std::size_t{4}), retinue::Value<int>(0));
}
// [/barrier]

// [semaphore]
void use_device(int /*rank*/, retinue::Event go, retinue::Semaphore devices, const retinue::Value<int>& in_use) {
  if (!go.wait(30s)) return;
  const std::lock_guard guard(devices);  // Two at a time.
  in_use.update([](int& now) { ++now; });
  if (in_use.get() > 2) fmt::print("too many\n");
  in_use.update([](int& now) { --now; });
}

void share_devices() {
  retinue::Event go;
  auto ranks =
      retinue::spawn<use_device>({.nprocs = 4, .join = false}, go, retinue::Semaphore(2), retinue::Value<int>(0));
  go.set();
  ranks.join();
  fmt::print("all had a device\n");
}
// [/semaphore]

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  count_together();
  add_up();
  repair();
  produce();
  step_together();
  share_devices();
}
