#pragma once

#include <c10/core/Storage.h>
#include <c10/cuda/CUDAEvent.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "retinue/ipc/job_memory.h"
#include "retinue/ipc/shared_block.h"

namespace retinue {

/// What this process lends: CUDA memory of its own that others have mapped, or are about to.
///
/// Threads: any.
class LentStorages {
 public:
  /// Never destroyed: receivers are waited for at exit, when statics may be gone.
  static LentStorages& get();

  /// The lease, and the event behind which the memory is ready; none where it is ready now.
  std::pair<SharedBlock, std::optional<cudaIpcEventHandle_t>> lend(const c10::Storage& storage);
  /// Lets this thread's current stream wait until what was lent is ready; for the owner, who gets it back.
  void await(const c10::Storage& storage);
  /// Lets go of what has come back, of one device or of all. Returns whether there was any. Also called by LibTorch's
  /// allocator, which holds the lock of its device.
  bool collect(std::optional<c10::DeviceIndex> device = std::nullopt);
  std::size_t count();
  /// A process that was forked from the lender's is not.
  bool is_of_this_process() const { return getpid() == process_; }

 private:
  struct Lent {
    std::weak_ptr<JobMemory> memory;
    BlockHandle lease;
    c10::Storage storage;
    const void* data;      ///< Whose lease it is: a storage may be given other memory.
    std::uint64_t number;  ///< In the order in which they were made.
    std::unique_ptr<c10::cuda::CUDAEvent> ready;
  };

  LentStorages();
  SharedBlock lease_for(const c10::Storage& storage);
  SharedBlock lease_of(const c10::Storage& storage);
  Lent* find(const c10::Storage& storage);
  std::optional<cudaIpcEventHandle_t> mark(const c10::Storage& storage);

  std::mutex lending_;  ///< One lease for one storage. Taken before the allocator's lock, and that before the next one.
  std::mutex mutex_;
  std::unordered_multimap<const c10::StorageImpl*, Lent> lent_;
  std::uint64_t leases_ = 0;
  const pid_t process_ = getpid();
};

}  // namespace retinue
