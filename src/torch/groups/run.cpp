#include "retinue/torch/run.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/StringUtil.h>

#include <cstdint>
#include <utility>

#include "retinue/base/error.h"
#include "retinue/launch/world_place.h"
#include "retinue/torch/groups.h"
#include "torch/groups/make_group.h"

namespace retinue::detail {
namespace {

void check(const RunOptions& options) {
  const auto check_index = [](const char* name, int index, const char* of, int count) {
    if (index < 0 || index >= count)
      throw UsageError(
          c10::str("run: ", name, " is ", index, " with ", of, " ", count, ": it must be 0 to ", of, " - 1"));
  };
  check_index("local_rank", options.local_rank, "num_proc", options.num_proc);
  check_index("shard_id", options.shard_id, "num_shards", options.num_shards);
  if (std::int64_t{options.num_proc} * options.num_shards > kMostRanks)
    throw UsageError(c10::str("run: num_proc ", options.num_proc, " times num_shards ", options.num_shards,
                              " is more than a world has ranks, ", kMostRanks));
}

/// Only a build of LibTorch that knows CUDA has an implementation.
void choose_device(int local_rank) {
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) return;
  const auto* const cuda = c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA);
  if (local_rank >= cuda->deviceCount()) return;
  cuda->setDevice(c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(local_rank)));
}

}  // namespace

RunOptions with_place_of(const RankContext& context, RunOptions options) {
  options.local_rank = context.local_rank();
  options.num_proc = context.local_world_size();
  return options;
}

void run_in_world(const RunOptions& options, const std::function<void(const ProcessGroup&)>& body,
                  const CallSite& site) {
  check(options);
  ProcessGroup group = init_at({.backend = options.backend,
                                .init_method = options.init_method,
                                .timeout = options.timeout,
                                .world_size = options.num_proc * options.num_shards,
                                .rank = options.shard_id * options.num_proc + options.local_rank},
                               site);
  try {
    choose_device(options.local_rank);
    body(group);
  } catch (...) {
    abandon_process_group(group);
    throw;
  }
  destroy_process_group(group);
}

}  // namespace retinue::detail
