#pragma once

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "collective/step_scenes.h"
#include "retinue/collective/communicator.h"

/// The same as step_scenes.h of calls whose parts are lists, and of calls that are begun.
namespace retinue::test {

/// Parts that lie at the even ones' places, but are of different sizes: what `giver` gives to `taker`.
inline std::size_t uneven_count(const Scene& scene, int giver, int taker) {
  return scene.count * static_cast<std::size_t>(1 + (giver + 2 * taker) % scene.ranks()) / scene.parts();
}
inline std::span<float> uneven_part(const Scene& scene, float* parts, int at, int giver, int taker) {
  return {parts + static_cast<std::size_t>(at) * scene.count, uneven_count(scene, giver, taker)};
}

/// Of what the ranks give to this one: `first` is where each has it.
inline void check_uneven(const Scene& scene, std::size_t first, int call) {
  for (int rank = 0; rank < scene.ranks(); ++rank)
    check(scene.more + static_cast<std::size_t>(rank) * scene.count, uneven_count(scene, rank, scene.group.rank()),
          [&](std::size_t i) { return value(rank, first + i, call); });
}

inline void uneven_all_to_alls(const Scene& scene) {
  const int own = scene.group.rank();
  std::vector<ConstBytes> inputs;
  std::vector<Bytes> outputs;
  for (int rank = 0; rank < scene.ranks(); ++rank) {
    inputs.push_back(std::as_bytes(uneven_part(scene, scene.data, rank, own, rank)));
    outputs.push_back(std::as_writable_bytes(uneven_part(scene, scene.more, rank, rank, own)));
  }
  for (int call = 0; call < kCalls; ++call) {
    fill(scene, scene.parts(), call);
    scene.group.run(CollectiveCall::all_to_all(inputs, outputs));
    check_uneven(scene, scene.own_place(), call);
  }
}

/// To all, to each root in turn, and from it.
inline void uneven_others(const Scene& scene) {
  const int own = scene.group.rank();
  const auto to_all = [&](int giver) { return uneven_count(scene, giver, 0); };
  std::vector<Bytes> outputs;
  std::vector<ConstBytes> inputs;
  for (int rank = 0; rank < scene.ranks(); ++rank) {
    const std::size_t place = static_cast<std::size_t>(rank) * scene.count;
    outputs.push_back(std::as_writable_bytes(std::span(scene.more + place, to_all(rank))));
    inputs.push_back(std::as_bytes(std::span<const float>(scene.data + place, to_all(rank))));
  }
  const ConstBytes input = std::as_bytes(std::span<const float>(scene.data, to_all(own)));
  const Bytes output = std::as_writable_bytes(std::span(scene.more, to_all(own)));
  const auto check_all = [&](int call) {
    for (int rank = 0; rank < scene.ranks(); ++rank)
      check(scene.more + static_cast<std::size_t>(rank) * scene.count, to_all(rank),
            [&](std::size_t i) { return value(rank, i, call); });
  };
  for (int root = 0; root < scene.ranks(); ++root) {
    fill(scene, scene.parts(), root);
    scene.group.run(CollectiveCall::gather(input, outputs, root));
    if (own == root) check_all(root);
    scene.group.run(CollectiveCall::all_gather(input, outputs));
    check_all(root);
    scene.group.run(CollectiveCall::scatter(inputs, output, root));
    check(scene.more, to_all(own), [&](std::size_t i) { return value(root, scene.own_place() + i, root); });
  }
}

/// Begun together; once waited for, once asked.
inline void begun(const Scene& scene) {
  const std::size_t count = std::max<std::size_t>(1, scene.count / 2);
  for (int call = 0; call < kCalls; ++call) {
    fill(scene, scene.parts(), call);
    const Request sum =
        scene.group.start(CollectiveCall::all_reduce(scene.data, count, Dtype::kFloat32, ReduceOp::kSum));
    const Request all =
        scene.group.start(CollectiveCall::all_gather(scene.data + count, scene.more, count * sizeof(float)));
    while (call == 1 && !all.done()) sched_yield();
    all.wait();
    sum.wait();
    check(scene.data, count, [&](std::size_t i) { return sum_of(scene.ranks(), i, call); });
    check_parts(scene, scene.more, count, count, call);
  }
}

/// The same of those that have a root.
inline void begun_of_roots(const Scene& scene) {
  Communicator& group = scene.group;
  const std::size_t count = std::max<std::size_t>(1, scene.count / 8);
  const std::size_t bytes = count * sizeof(float);
  const auto own = static_cast<std::size_t>(group.rank());
  float* const gathered = scene.more + count;
  float* const scattered = gathered + scene.parts() * count;
  for (int root = 0; root < scene.ranks(); ++root) {
    for (std::size_t i = 0; i < (3 + scene.parts()) * count; ++i) scene.data[i] = value(group.rank(), i, root);
    const Request requests[] = {group.start(CollectiveCall::broadcast(scene.data, bytes, root)),
                                group.start(CollectiveCall::reduce(scene.data + count, scene.more, count,
                                                                   Dtype::kFloat32, ReduceOp::kSum, root)),
                                group.start(CollectiveCall::gather(scene.data + 2 * count, gathered, bytes, root)),
                                group.start(CollectiveCall::scatter(scene.data + 3 * count, scattered, bytes, root))};
    while (root == 1 && !requests[3].done()) sched_yield();
    for (const Request& request : requests) request.wait();
    check(scene.data, count, [&](std::size_t i) { return value(root, i, root); });
    check(scattered, count, [&](std::size_t i) { return value(root, (3 + own) * count + i, root); });
    if (group.rank() != root) continue;
    check(scene.more, count, [&](std::size_t i) { return sum_of(scene.ranks(), count + i, root); });
    check_parts(scene, gathered, count, 2 * count, root);
  }
}

}  // namespace retinue::test
