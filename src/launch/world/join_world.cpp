#include "retinue/launch/join_world.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <utility>

#include "ipc/memory/process_table.h"
#include "launch/world/meeting_place.h"
#include "os/files/environment.h"
#include "retinue/base/error.h"
#include "retinue/launch/join_group.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/store_exchange.h"
#include "retinue/launch/world_place.h"
#include "retinue/store/file_store.h"

namespace retinue {
namespace {

constexpr const char* kOfEnvironment = "env://";

void check(const WorldOptions& options) {
  if (options.timeout <= std::chrono::nanoseconds(0))
    throw UsageError("join_world: the timeout must be greater than 0");
  if (options.late_after && *options.late_after < std::chrono::nanoseconds(0))
    throw UsageError("join_world: late_after is negative; use 0 to report no late ranks");
  if (options.world_size < -1 || options.world_size == 0 || options.rank < -1)
    throw UsageError(fmt::format(
        "join_world: rank {} of {} is not valid; leave out rank and world_size if the environment sets them",
        options.rank, options.world_size));
}

/// This rank's world, if Retinue started it and that one is meant.
std::optional<RankContext> own_context(const WorldOptions& options) {
  const Runtime* const runtime = Runtime::current_or_null();
  if (runtime == nullptr || !runtime->is_rank() || options.store || options.init_method != kOfEnvironment)
    return std::nullopt;
  RankContext context = runtime->rank_context();
  const bool is_meant = (options.world_size == -1 || options.world_size == context.world_size()) &&
                        (options.rank == -1 || options.rank == context.rank());
  return is_meant ? std::optional(context) : std::nullopt;
}

MeetingPlace place_to_meet(const WorldOptions& options) {
  if (options.store || options.init_method == kOfEnvironment) return {};
  return meeting_place_of(options.init_method);
}

/// What the options say goes first, then the init method, then the environment.
WorldPlace place_in_world(const WorldOptions& options, const MeetingPlace& meeting) {
  const std::optional<int> rank = options.rank != -1 ? options.rank : meeting.rank;
  const std::optional<int> size = options.world_size != -1 ? options.world_size : meeting.world_size;
  WorldPlace place;
  if (!rank || !size) place = world_place_of_environment();
  if (!size && place.source.empty() && find_variable("RANK"))
    throw UsageError(fmt::format("the environment sets RANK={}, but not WORLD_SIZE: set WORLD_SIZE too, or unset RANK",
                                 *find_variable("RANK")));
  const bool is_one_alone = size ? *size == 1 : !rank && !options.store && options.init_method == kOfEnvironment;
  if ((!rank || !size) && place.source.empty() && !is_one_alone)
    throw UsageError(
        "join_world: the rank and the world size of this process are unknown: give rank and world_size, or set RANK "
        "and WORLD_SIZE");
  if (rank) place.rank = *rank;
  if (size) place.world_size = *size;
  if (place.world_size > kMostRanks)
    throw UsageError(
        fmt::format("join_world: a world of {} ranks is too large: the maximum is {}", place.world_size, kMostRanks));
  if (place.rank >= place.world_size)
    throw UsageError(
        fmt::format("join_world: there is no rank {} in a world of {} ranks", place.rank, place.world_size));
  return place;
}

/// Of a rank of a job, which calls it by another number than the world does.
void print_reports(const WorldPlace& place) {
  const Runtime* const runtime = Runtime::current_or_null();
  if (runtime == nullptr || !runtime->is_rank()) return;
  const JobMemory& memory = *runtime->memory();
  if (memory.is_of_this_process()) note_world(process_slot(memory, memory.own_slot()), place.rank, place.world_size);
}

/// Rank 0 may end its process, and the store with it, before the others have read the last step.
void finish(StoreExchange& exchange, const std::shared_ptr<Store>& store, const WorldOptions& options) {
  if (dynamic_cast<const FileStore*>(store.get()) != nullptr) return;  // A file stays.
  const std::vector<std::string> readers = exchange.finish();
  if (options.store == nullptr) return wait_for_readers_at_exit(store, readers);
  if (!readers.empty()) exchange.leave_together();
}

JobGroup join_by(const std::shared_ptr<Store>& store, const WorldOptions& options, const WorldPlace& place,
                 Deadline deadline) {
  StoreExchange exchange({.store = store,
                          .name = options.name,
                          .rank = place.rank,
                          .size = place.world_size,
                          .deadline = deadline,
                          .call = options.call,
                          .late_after = options.late_after});
  bool is_in_step = false;
  const auto all_gather = [&](const void* own, void* all, std::size_t bytes) {
    is_in_step = true;
    exchange.all_gather(own, all, bytes);
    is_in_step = false;
  };
  try {
    JobGroup group = join_group({.rank = place.rank,
                                 .size = place.world_size,
                                 .name = options.name,
                                 .hosts_advice = "start all ranks on one host, or make a world for each host",
                                 .all_gather = all_gather});
    finish(exchange, store, options);
    return group;
  } catch (const Error&) {
    // All have it, or will when they have read the last step; one that comes of a step all have been told.
    if (!is_in_step) exchange.leave_together();
    throw;
  }
}

JobGroup join_alone(const WorldOptions& options) {
  return join_group(
      {.rank = 0, .size = 1, .name = options.name, .all_gather = [](const void* own, void* all, std::size_t bytes) {
         std::memcpy(all, own, bytes);
       }});
}

}  // namespace

WorldPlace place_in_world(const WorldOptions& options) {
  check(options);
  if (const auto context = own_context(options))
    return {.rank = context->rank(),
            .world_size = context->world_size(),
            .local_rank = context->local_rank(),
            .source = "the job"};
  return place_in_world(options, place_to_meet(options));
}

std::shared_ptr<Store> open_world_store(const WorldOptions& options) {
  check(options);
  MeetingPlace meeting = place_to_meet(options);
  const WorldPlace place = place_in_world(options, meeting);
  print_reports(place);
  if (options.store) return options.store;
  if (options.init_method == kOfEnvironment) meeting = meeting_place_of_environment(place);
  return open_store(meeting, place, options);
}

JobGroup join_world(const WorldOptions& options) {
  check(options);
  if (const auto context = own_context(options)) return context->world();
  const WorldPlace place = place_in_world(options, place_to_meet(options));
  if (place.world_size == 1) return join_alone(options);
  const Deadline deadline = Deadline::after(options.timeout);
  return join_by(open_world_store(options), options, place, deadline);
}

}  // namespace retinue
