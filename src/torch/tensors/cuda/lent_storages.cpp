#include "torch/tensors/cuda/lent_storages.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Registry.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "retinue/base/deadline.h"
#include "retinue/base/error.h"
#include "torch/tensors/cuda/cuda_lease.h"
#include "torch/tensors/shared_storage.h"

namespace retinue {
namespace {

using c10::cuda::CUDAEvent;

/// How long a process that ends waits for those that still use its memory, which ends with it.
constexpr std::chrono::seconds kPatienceAtExit{5};
/// The driver has some 20,000 events for processes to share; who lends more at a time waits for its stream instead.
constexpr std::size_t kMostEvents = 1000;
constexpr unsigned kEventFlags = cudaEventDisableTiming | cudaEventInterprocess;

/// What others have mapped would be pulled from under them.
void release_at_exit() {
  LentStorages& lent = LentStorages::get();
  if (!lent.is_of_this_process()) return;
  const Deadline deadline = Deadline::after(kPatienceAtExit);
  for (;;) {
    try {
      lent.collect();
    } catch (const Error&) {
      return;
    }
    if (lent.count() == 0) return;
    if (deadline.passed()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // A lease that comes back rings no bell.
  }
  TORCH_WARN("process ", getpid(), " ends while ", lent.count(),
             " CUDA storages that it sent are in use or in flight; its end frees their memory. Keep the process "
             "running until its receivers have released them, or send tensor.cpu()");
}

/// LibTorch calls it where it would have to ask the driver for more memory.
class CollectCallback : public c10::FreeMemoryCallback {
 public:
  bool Execute() override {
    try {
      return LentStorages::get().collect(c10::cuda::current_device());  // Others have locks of their own.
    } catch (const Error&) {
      return false;  // Who holds the block table stands still: memory may come from elsewhere.
    }
  }
};

}  // namespace

LentStorages& LentStorages::get() {
  static auto* const lent = new LentStorages;
  return *lent;
}

LentStorages::LentStorages() {
  std::atexit(&release_at_exit);
  std::at_quick_exit(&release_at_exit);
}

std::pair<SharedBlock, std::optional<cudaIpcEventHandle_t>> LentStorages::lend(const c10::Storage& storage) {
  collect();
  const SharedBlock lease = lease_for(storage);
  remember_storage(lease, storage);
  return {lease, mark(storage)};
}

void LentStorages::await(const c10::Storage& storage) {
  const std::lock_guard lock(mutex_);
  const auto all = lent_.equal_range(storage.unsafeGetStorageImpl());
  for (auto lent = all.first; lent != all.second; ++lent)
    if (lent->second.ready) lent->second.ready->block(c10::cuda::getCurrentCUDAStream());
}

bool LentStorages::collect(std::optional<c10::DeviceIndex> device) {
  std::vector<Lent> returned;  // Destroyed without the mutex, since that calls the allocator.
  const std::lock_guard lock(mutex_);
  for (auto each = lent_.begin(); each != lent_.end();) {
    const bool is_meant = !device || each->second.storage.device().index() == *device;
    const auto memory = each->second.memory.lock();
    if (!is_meant || (memory && memory->may_be_used(each->second.lease))) {
      ++each;
    } else {
      returned.push_back(std::move(each->second));
      each = lent_.erase(each);
    }
  }
  return !returned.empty();
}

std::size_t LentStorages::count() {
  const std::lock_guard lock(mutex_);
  return lent_.size();
}

/// The one that it has, or a new one.
SharedBlock LentStorages::lease_for(const c10::Storage& storage) {
  const std::lock_guard lending(lending_);
  SharedBlock lease = lease_of(storage);
  if (lease) return lease;
  lease = make_lease(storage);
  const std::lock_guard lock(mutex_);
  lent_.emplace(storage.unsafeGetStorageImpl(),
                Lent{lease.memory(), lease.handle(), storage, storage.data(), ++leases_,
                     lent_.size() < kMostEvents ? std::make_unique<CUDAEvent>(kEventFlags) : nullptr});
  return lease;
}

/// Empty where it has none, or its last holder just let go.
SharedBlock LentStorages::lease_of(const c10::Storage& storage) {
  const std::lock_guard lock(mutex_);
  const Lent* const lent = find(storage);
  if (lent == nullptr) return {};
  try {
    return SharedBlock::hold(JobMemory::current(), lent->lease);
  } catch (const UsageError&) {
    return {};
  }
}

/// The newest of this job's for the memory that the storage has now; others are kept as long as somebody has them.
LentStorages::Lent* LentStorages::find(const c10::Storage& storage) {
  Lent* found = nullptr;
  const auto all = lent_.equal_range(storage.unsafeGetStorageImpl());
  for (auto lent = all.first; lent != all.second; ++lent) {
    const bool is_it = lent->second.data == storage.data() && lent->second.memory.lock() == JobMemory::current();
    if (is_it && (found == nullptr || found->number < lent->second.number)) found = &lent->second;
  }
  return found;
}

/// Whoever waits for the event from now on waits for all that the current stream has to do.
std::optional<cudaIpcEventHandle_t> LentStorages::mark(const c10::Storage& storage) {
  const auto stream = c10::cuda::getCurrentCUDAStream();
  {
    const std::lock_guard lock(mutex_);
    Lent* const lent = find(storage);
    std::unique_ptr<CUDAEvent> none;
    std::unique_ptr<CUDAEvent>& ready = lent == nullptr ? none : lent->ready;
    if (ready != nullptr) try {
        ready->block(stream);  // A message that is on its way still waits for what it was recorded behind.
        ready->record(stream);
        cudaIpcEventHandle_t handle{};
        ready->ipc_handle(&handle);
        return handle;
      } catch (const c10::AcceleratorError&) {
        ready.reset();  // Where processes can't share events, or no more of them.
        static_cast<void>(cudaGetLastError());
      }
  }
  stream.synchronize();  // Without the mutex: the stream may wait for what another thread must do first.
  return std::nullopt;
}

}  // namespace retinue

namespace c10 {
REGISTER_FREE_MEMORY_CALLBACK("retinue_collect", retinue::CollectCallback)
}  // namespace c10
