// Locks and their like that are made by default: new ones, unless they are about to be read.
#include <gtest/gtest.h>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "retinue/collective/objects.h"
#include "retinue/ipc/condition.h"
#include "retinue/ipc/event.h"
#include "retinue/ipc/lock.h"
#include "retinue/ipc/queue.h"
#include "retinue/ipc/shared_value.h"
#include "retinue/launch/pool.h"
#include "retinue/launch/spawn.h"
#include "support/start_methods.h"

using namespace std::chrono_literals;
using retinue::Condition;
using retinue::Event;
using retinue::JobMemory;
using retinue::Lock;
using retinue::RLock;
using retinue::test::EachStartMethod;

namespace {

const Lock made_before_the_runtime;

/// As a struct of the user's has them.
struct Guarded {
  Lock lock;
  RLock rlock;
  Event event;
  Condition condition;
  bool was_made_without = !lock && !rlock && !event && !condition;

  bool has_all() const { return lock && rlock && event && condition; }
  template <class Archive>
  void serialize(Archive& archive) {
    archive(lock, rlock, event, condition);
  }
};

/// What was read was not made before; what the function itself makes is new.
Guarded take(Guarded given) {
  const Guarded own;
  if (!given.was_made_without || !given.has_all()) throw std::runtime_error("made, and then read");
  if (own.was_made_without || !own.has_all()) throw std::runtime_error("not made");
  {
    const std::lock_guard guard(given.lock);
    given.event.set();
  }
  return given;
}
Guarded take_in_rank(int /*rank*/, Guarded given) {
  return take(std::move(given));
}

void expect_same(const Guarded& back, const Guarded& guarded) {
  EXPECT_TRUE(back.was_made_without);
  EXPECT_EQ(back.lock, guarded.lock);
  EXPECT_EQ(back.rlock, guarded.rlock);
  EXPECT_EQ(back.event, guarded.event);
  EXPECT_EQ(back.condition, guarded.condition);
}

TEST_P(EachStartMethod, LocksThatAreReadAreNotMadeBefore) {
  const std::size_t before = JobMemory::current()->allocated_bytes();
  {
    const Guarded guarded;
    ASSERT_TRUE(guarded.has_all());
    const auto ended =
        retinue::spawn<take_in_rank>({.nprocs = 1, .start_method = GetParam(), .join = false}, guarded).wait();
    expect_same(ended.value<Guarded>(0), guarded);
    EXPECT_TRUE(guarded.event.is_set());
    retinue::Pool pool({.processes = 1, .start_method = GetParam()});
    expect_same(pool.apply_async<take>(guarded).get(), guarded);
    expect_same(pool.map<take>(std::vector{guarded, guarded}).at(1), guarded);
    retinue::Queue<Guarded> queue({.capacity = 1});
    queue.put(guarded);
    expect_same(queue.get(), guarded);
  }
  EXPECT_EQ(JobMemory::current()->allocated_bytes(), before);
}

void exchange(retinue::RankContext& context, const Guarded& guarded) {
  retinue::Communicator group(context.world());
  for (const Guarded& each : retinue::all_gather_object(group, guarded))
    if (!each.was_made_without || each.lock != guarded.lock) throw std::runtime_error("all_gather_object");
  const Guarded one = retinue::scatter_object(group, std::vector(2, guarded), 0);
  if (!one.was_made_without || one.lock != guarded.lock) throw std::runtime_error("scatter_object");
}

TEST(MadeLocks, NorAreThoseOfObjects) {
  retinue::spawn<exchange>({.nprocs = 2}, Guarded());
}

void add(int /*rank*/, Lock lock, const retinue::Array<long>& sum) {
  for (int i = 0; i < 1000; ++i) {
    const std::lock_guard guard(lock);
    sum.get_obj()[0] += 1;
  }
}

TEST(MadeLocks, ServeAtOnce) {
  const Lock lock;
  const retinue::Array<long> sum(std::size_t{1});
  retinue::spawn<add>({.nprocs = 3}, lock, sum);
  EXPECT_EQ(sum.get(0), 3000);
  Condition condition;
  const std::lock_guard guard(condition);
  EXPECT_FALSE(condition.wait(1ms));
}

TEST(MadeLocks, AreNoneWithoutARuntime) {
  EXPECT_FALSE(made_before_the_runtime);
  EXPECT_THROW(Lock(made_before_the_runtime).lock(), retinue::UsageError);
}

INSTANTIATE_TEST_SUITE_P(StartMethods, EachStartMethod, retinue::test::all_start_methods(),
                         retinue::test::start_method_name);

}  // namespace
