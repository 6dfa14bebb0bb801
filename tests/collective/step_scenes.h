#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "retinue/collective/communicator.h"

/// Calls of all kinds, in all ways of calling, each of which checks what it gives.
namespace retinue::test {

/// One member's: `data` and `more` hold `count` elements for each rank, and at least kLeastRoom.
struct Scene {
  Communicator& group;
  std::size_t count;
  float* data;
  float* more;

  static constexpr std::size_t kLeastRoom = 16;

  int ranks() const { return group.size(); }
  std::span<const float> given(std::size_t parts = 1) const { return {data, parts * count}; }
  std::size_t parts() const { return static_cast<std::size_t>(ranks()); }
  /// Where this rank's part is among those of all.
  std::size_t own_place() const { return static_cast<std::size_t>(group.rank()) * count; }
};

inline float value(int rank, std::size_t i, int call) {
  return static_cast<float>(rank + 1) + static_cast<float>(i % 13) + static_cast<float>(call * 3);
}

inline void fill(const Scene& scene, std::size_t parts, int call) {
  for (std::size_t i = 0; i < parts * scene.count; ++i) scene.data[i] = value(scene.group.rank(), i, call);
}

template <typename Wanted>
void check(const float* data, std::size_t count, Wanted wanted) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) wrong += data[i] != wanted(i);
  EXPECT_EQ(wrong, 0u);
}

/// The parts of all ranks, one behind the other, each with what its rank has from `first` on.
inline void check_parts(const Scene& scene, const float* data, std::size_t count, std::size_t first, int call) {
  for (int rank = 0; rank < scene.ranks(); ++rank)
    check(data + static_cast<std::size_t>(rank) * count, count,
          [&](std::size_t i) { return value(rank, first + i, call); });
}

/// Of ranks 0 to before `ranks`.
inline float sum_of(int ranks, std::size_t i, int call) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += value(rank, i, call);
  return sum;
}
inline float difference_of(int ranks, std::size_t i, int call) {
  return 2 * value(0, i, call) - sum_of(ranks, i, call);
}

constexpr int kCalls = 2;

inline void barriers(const Scene& scene) {
  for (int call = 0; call < kCalls; ++call) scene.group.barrier();
}

inline void all_reduces(const Scene& scene) {
  for (int call = 0; call < kCalls; ++call) {
    fill(scene, 1, call);
    scene.group.all_reduce(std::span(scene.data, scene.count));
    check(scene.data, scene.count, [&](std::size_t i) { return sum_of(scene.ranks(), i, call); });
  }
}

inline void coalesced(const Scene& scene) {
  const std::size_t first = scene.count / 3;
  const std::span all(scene.data, scene.count);
  const Bytes buffers[] = {std::as_writable_bytes(all.subspan(first)), std::as_writable_bytes(all.first(first))};
  for (int call = 0; call < kCalls; ++call) {
    fill(scene, 1, call);
    scene.group.all_reduce_coalesced(buffers, Dtype::kFloat32, ReduceOp::kSum);
    check(scene.data, scene.count, [&](std::size_t i) { return sum_of(scene.ranks(), i, call); });
  }
}

inline void reduces(const Scene& scene) {
  for (int root = 0; root < scene.ranks(); ++root) {
    fill(scene, 1, root);
    scene.group.reduce(scene.given(), std::span(scene.more, scene.count), root);
    if (scene.group.rank() == root)
      check(scene.more, scene.count, [&](std::size_t i) { return sum_of(scene.ranks(), i, root); });
  }
}

/// In rank order, or the result is another one.
inline void functions(const Scene& scene) {
  Communicator& group = scene.group;
  for (int root = 0; root < scene.ranks(); ++root) {
    fill(scene, 1, root);
    group.reduce<std::minus<float>{}>(scene.given(), std::span(scene.more, scene.count), root);
    if (group.rank() == root)
      check(scene.more, scene.count, [&](std::size_t i) { return difference_of(scene.ranks(), i, root); });
    group.scan<std::minus<float>{}>(scene.given(), std::span(scene.more, scene.count));
    check(scene.more, scene.count, [&](std::size_t i) { return difference_of(group.rank() + 1, i, root); });
    group.all_reduce<std::minus<float>{}>(std::span(scene.data, scene.count));
    check(scene.data, scene.count, [&](std::size_t i) { return difference_of(scene.ranks(), i, root); });
  }
}

inline void broadcasts(const Scene& scene) {
  for (int root = 0; root < scene.ranks(); ++root) {
    fill(scene, 1, root);
    scene.group.broadcast(std::span(scene.data, scene.count), root);
    check(scene.data, scene.count, [&](std::size_t i) { return value(root, i, root); });
  }
}

inline void all_gathers(const Scene& scene) {
  for (int call = 0; call < kCalls; ++call) {
    fill(scene, 1, call);
    scene.group.all_gather(scene.given(), std::span(scene.more, scene.parts() * scene.count));
    check_parts(scene, scene.more, scene.count, 0, call);
  }
}

inline void all_to_alls(const Scene& scene) {
  for (int call = 0; call < kCalls; ++call) {
    fill(scene, scene.parts(), call);
    scene.group.all_to_all(scene.given(scene.parts()), std::span(scene.more, scene.parts() * scene.count));
    check_parts(scene, scene.more, scene.count, scene.own_place(), call);
  }
}

inline void messages(const Scene& scene) {
  const int next = (scene.group.rank() + 1) % scene.ranks();
  const int previous = (scene.group.rank() + scene.ranks() - 1) % scene.ranks();
  for (int call = 0; call < kCalls; ++call) {
    fill(scene, 1, call);
    scene.group.sendrecv(std::span(scene.data, scene.count), next, std::span(scene.more, scene.count), previous);
    check(scene.more, scene.count, [&](std::size_t i) { return value(previous, i, call); });
  }
}

inline void gathers(const Scene& scene) {
  for (int root = 0; root < scene.ranks(); ++root) {
    fill(scene, 1, root);
    scene.group.gather(scene.given(), std::span(scene.more, scene.parts() * scene.count), root);
    if (scene.group.rank() == root) check_parts(scene, scene.more, scene.count, 0, root);
  }
}

inline void scatters(const Scene& scene) {
  for (int root = 0; root < scene.ranks(); ++root) {
    fill(scene, scene.parts(), root);
    scene.group.scatter(scene.given(scene.parts()), std::span(scene.more, scene.count), root);
    check(scene.more, scene.count, [&](std::size_t i) { return value(root, scene.own_place() + i, root); });
  }
}

inline void reduce_scatters(const Scene& scene) {
  for (int call = 0; call < kCalls; ++call) {
    fill(scene, scene.parts(), call);
    scene.group.reduce_scatter(scene.given(scene.parts()), std::span(scene.more, scene.count));
    check(scene.more, scene.count, [&](std::size_t i) { return sum_of(scene.ranks(), scene.own_place() + i, call); });
  }
}

inline void scans(const Scene& scene) {
  for (int call = 0; call < kCalls; ++call) {
    fill(scene, 1, call);
    scene.group.scan(scene.given(), std::span(scene.more, scene.count));
    check(scene.more, scene.count, [&](std::size_t i) { return sum_of(scene.group.rank() + 1, i, call); });
  }
}

}  // namespace retinue::test
