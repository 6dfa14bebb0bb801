#include <c10/util/StringUtil.h>

#include <cstdlib>
#include <string>

#include "retinue/base/error.h"
#include "retinue/launch/runtime.h"
#include "retinue/torch/process_group.h"
#include "torch/make_group.h"
#include "torch/shm_backend.h"

namespace retinue {
namespace {

/// The world's size that a launcher wrote into the environment; 1 without one.
int world_size_of_environment() {
  const char* text = std::getenv("WORLD_SIZE");
  if (text == nullptr || *text == '\0') return 1;
  char* end = nullptr;
  const long size = std::strtol(text, &end, 10);
  if (*end != '\0' || size < 1 || size > 1'000'000)
    throw UsageError(c10::str("init_process_group: the environment's WORLD_SIZE is \"", text,
                              "\", not a number of ranks; unset it, or start the ranks with `retinue run -n N`"));
  return static_cast<int>(size);
}

void refuse_foreign_world(bool has_runtime) {
  const int size = world_size_of_environment();
  if (size == 1) return;
  if (!has_runtime)
    throw UsageError(c10::str("init_process_group: the environment says WORLD_SIZE=", size,
                              ", but main has made no Runtime and so is in no job; make `retinue::Runtime "
                              "runtime(argc, argv);` its first line"));
  throw UsageError(c10::str("init_process_group: the environment says WORLD_SIZE=", size,
                            ", but another launcher than Retinue started this process, and its ranks share no memory; "
                            "start them with `retinue run -n ",
                            size, "`, or unset WORLD_SIZE to train in one process"));
}

}  // namespace

ProcessGroup init_process_group(const RankContext& context, ProcessGroupOptions options) {
  return init_process_group(context.world(), std::move(options));
}

ProcessGroup init_process_group(ProcessGroupOptions options) {
  const Runtime* runtime = Runtime::current_or_null();
  if (runtime == nullptr || !runtime->is_rank()) refuse_foreign_world(runtime != nullptr);
  if (runtime != nullptr) return init_process_group(runtime->rank_context().world(), std::move(options));
  check_options(options);
  return make_group(c10::make_intrusive<ShmBackend>(options.timeout), options.group_name);
}

}  // namespace retinue
