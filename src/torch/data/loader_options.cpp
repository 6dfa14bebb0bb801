#include "torch/data/loader_options.h"

#include <c10/util/StringUtil.h>

#include <limits>

#include "retinue/base/error.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {
namespace {

constexpr std::size_t kMostWorkers = 1024;
constexpr std::size_t kMostBatches = std::size_t{1} << 16;

}  // namespace

void check_options(const DataLoaderOptions& options) {
  if (options.batch_size < 1 || options.batch_size > std::numeric_limits<std::uint32_t>::max())
    throw UsageError(c10::str("make_data_loader: batch_size is ", options.batch_size, ", and must be at least 1"));
  if (options.workers > kMostWorkers)
    throw UsageError(
        c10::str("make_data_loader: ", options.workers, " workers, and at most ", kMostWorkers, " are possible"));
  if (options.prefetch > kMostBatches)
    throw UsageError(c10::str("make_data_loader: prefetch is ", options.prefetch, " batches, and at most ",
                              kMostBatches, " are possible"));
  if (options.timeout.count() < 0) throw UsageError("make_data_loader: the timeout is negative");
  if (options.late_after && options.late_after->count() < 0)
    throw UsageError("make_data_loader: late_after is negative");
  if (options.kind == WorkerKind::kProcesses && options.workers > 0 && JobMemory::current_or_null() == nullptr)
    throw UsageError("make_data_loader: WorkerKind::kProcesses needs job memory, and this process has no Runtime");
}

}  // namespace retinue
