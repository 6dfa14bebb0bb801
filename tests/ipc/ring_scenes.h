#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <vector>

#include "retinue/ipc/queue.h"

/// What victims do with a queue in ring_crash_test.cpp.
namespace retinue {

/// What the victim had done when it died, in shared memory.
struct Progress {
  std::atomic<int> put;
  std::atomic<int> got;
  std::atomic<int> done;
  std::atomic<int> closed;
};

/// Messages of all kinds: words; what fits a slot; what needs a block.
struct WordMessage {
  using Type = int;
  static int of(int id) { return id; }
  static int id(int message) { return message; }
};
template <std::size_t count>
struct RowMessage {
  using Type = std::vector<int>;
  static std::vector<int> of(int id) { return std::vector<int>(count, id); }
  static int id(const std::vector<int>& message) {
    EXPECT_EQ(message, of(message.at(0)));
    return message.at(0);
  }
};
using WideMessage = RowMessage<3>;
using LongMessage = RowMessage<1000>;

/// What refers to a block.
struct BlockMessage {
  using Type = SharedBlock;
  static SharedBlock of(int id) {
    SharedBlock block = SharedBlock::allocate(sizeof id);
    *reinterpret_cast<int*>(block.data()) = id;
    return block;
  }
  static int id(const SharedBlock& message) { return *reinterpret_cast<const int*>(message.data()); }
};

inline constexpr int kFirstOfVictim = 1;
inline constexpr int kFirstOfParent = 101;

template <class M>
using QueueOf = Queue<typename M::Type>;

/// What the victim does, on a queue in which the parent has put `before` messages.
template <class M>
struct Scene {
  QueueOptions options;
  int before;
  std::function<void(QueueOf<M>&, Progress&)> act;
  /// Messages that it puts or gets with one call.
  int at_once = 1;
};

template <class M>
void put_three(QueueOf<M>& queue, Progress& progress) {
  for (int i = 0; i < 3; ++i) {
    queue.try_put(M::of(kFirstOfVictim + i));
    ++progress.put;
  }
}

template <class M>
void get_three(QueueOf<M>& queue, Progress& progress) {
  for (int i = 0; i < 3; ++i) {
    queue.try_get();
    ++progress.got;
  }
}

template <class M>
void do_three_tasks(QueueOf<M>& queue, Progress& progress) {
  get_three<M>(queue, progress);
  for (int i = 0; i < 3; ++i) {
    queue.task_done();
    ++progress.done;
  }
}

}  // namespace retinue
