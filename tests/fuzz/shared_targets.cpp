// Objects in job memory that somebody overwrote.
#include <cereal/types/string.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/vector.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/harness.h"
#include "retinue/ipc/barrier.h"
#include "retinue/ipc/condition.h"
#include "retinue/ipc/event.h"
#include "retinue/ipc/lock.h"
#include "retinue/ipc/queue.h"
#include "retinue/ipc/semaphore.h"
#include "retinue/ipc/shared_value.h"

namespace retinue::fuzz {
namespace {

using namespace std::chrono_literals;

/// The same object as it arrives somewhere else.
template <class Object>
Object arrive(const detail::Encoded& encoded) {
  Object object;
  detail::decode_value(encoded.bytes, object);
  return object;
}

std::span<std::byte> memory_of(const SharedBlock& block) {
  return {block.data(), block.bytes()};
}

template <class T>
void use(Queue<T>& queue, std::uint8_t how, const T& message) {
  attempt([&] { require(queue.size() <= queue.capacity(), "more messages than slots"); });
  attempt([&] { static_cast<void>(queue.full()); });
  if ((how & 1) != 0) attempt([&] { queue.try_put(message); });
  for (int i = 0; i < 3; ++i) attempt([&] { queue.try_get(); });
  if ((how & 2) != 0) attempt([&] { queue.put_many(std::vector<T>(3, message), 0ns); });
  if ((how & 4) != 0) attempt([&] { queue.get_many(6, 0ns); });
  if ((how & 8) != 0) attempt([&] { queue.task_done(); });
  if ((how & 16) != 0) attempt([&] { queue.join(0ns); });
  if ((how & 32) != 0) attempt([&] { queue.close(); });
  attempt([&] { queue.try_get(); });
}

template <class T>
void overwrite_queue(Input& input, const T& small, const T& large) {
  const auto how = input.number<std::uint8_t>();
  const auto options = input.number<std::uint8_t>();
  const OnConsumerDeath policy = (options & 1) != 0 ? OnConsumerDeath::kRedeliver : OnConsumerDeath::kReport;
  detail::Encoded encoded;
  {
    Queue<T> queue({.capacity = 4, .on_consumer_death = policy, .joinable = (options & 2) != 0, .message_bytes = 40});
    if ((options & 4) != 0) queue.try_get();
    for (const T& message : {small, large, small}) queue.try_put(message);
    if ((options & 8) != 0) queue.try_get();
    encoded = detail::encode_value(queue);
  }
  overwrite(input, memory_of(encoded.references.at(0)));
  try {
    auto queue = arrive<Queue<T>>(encoded);
    use(queue, how, (options & 16) != 0 ? large : small);
  } catch (const UsageError&) {
    // It is none any more.
  }
}

template <class Object, class Use>
void overwrite_object(const Object& object, Input& input, Use use) {
  const detail::Encoded encoded = detail::encode_value(object);
  const auto which = input.number<std::uint8_t>() % encoded.references.size();
  overwrite(input, memory_of(encoded.references[which]));
  try {
    auto arrived = arrive<Object>(encoded);
    use(arrived);
  } catch (const UsageError&) {
    // It is none any more, or says that it is not held.
  }
}

using Shared = void (*)(Input&);
constexpr Shared kShared[] = {
    [](Input& input) { overwrite_object(Lock::create(), input, [](Lock& lock) { static_cast<void>(lock.locked()); }); },
    [](Input& input) {
      overwrite_object(RLock::create(), input, [](RLock& lock) { static_cast<void>(lock.locked()); });
    },
    [](Input& input) {
      overwrite_object(Semaphore(2), input, [](Semaphore& semaphore) {
        if (semaphore.get_value() != 0) semaphore.acquire(0ns);
        semaphore.release();
      });
    },
    [](Input& input) {
      overwrite_object(Event::create(), input, [](Event& event) {
        event.wait(0ns);
        event.set();
        require(event.is_set(), "an event that was not set by set()");
      });
    },
    [](Input& input) { overwrite_object(Condition::create(), input, [](Condition&) {}); },
    [](Input& input) {
      overwrite_object(Barrier(3), input, [](Barrier& barrier) {
        static_cast<void>(barrier.parties() + barrier.n_waiting() + static_cast<int>(barrier.broken()));
      });
    },
    [](Input& input) {
      overwrite_object(Value<double>(1), input, [](Value<double>& value) {
        const JobMemory& memory = *Job::instance().memory();
        require(memory.contains(&value.get_obj(), sizeof(double)), "a value outside of job memory");
        value.get_obj() = 2;
      });
    },
    [](Input& input) {
      overwrite_object(Array<int>(5), input, [](Array<int>& array) {
        const SharedBlock block = detail::encode_value(array).references.at(0);
        const std::span<int> all = array.get_obj();
        const auto* const begin = reinterpret_cast<const std::byte*>(all.data());
        require(begin >= block.data() && begin + all.size_bytes() <= block.data() + block.bytes(),
                "an array outside of its block");
      });
    },
};

}  // namespace

void queue(Bytes bytes) {
  Input input(bytes);
  const auto kind = input.number<std::uint8_t>() % 3;
  without_leaks([&] {
    if (kind == 0) overwrite_queue<std::uint64_t>(input, 1, 2);
    if (kind == 1) overwrite_queue<std::string>(input, "small", std::string(100, 'l'));
    if (kind == 2) overwrite_queue<std::vector<std::string>>(input, {"small"}, {std::string(50, 'l'), "", "x"});
  });
}

void shared_objects(Bytes bytes) {
  Input input(bytes);
  const Shared& shared = kShared[input.number<std::uint8_t>() % std::size(kShared)];
  without_leaks([&] { shared(input); });
}

}  // namespace retinue::fuzz
