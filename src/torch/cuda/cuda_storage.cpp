#include "torch/cuda_storage.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Registry.h>
#include <c10/util/StringUtil.h>
#include <cuda_runtime_api.h>
#include <poll.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "retinue/base/deadline.h"
#include "retinue/base/error.h"
#include "retinue/ipc/job_memory.h"
#include "retinue/ipc/shared_block.h"
#include "torch/cuda/cuda_lease.h"
#include "torch/shared_storage.h"

namespace retinue {
namespace {

using c10::cuda::CUDAEvent;

/// How long a process that ends waits for those that still use its memory, which ends with it.
constexpr std::chrono::seconds kPatienceAtExit{5};
/// The driver has some 20,000 events for processes to share; who lends more at a time waits for its stream instead.
constexpr std::size_t kMostEvents = 1000;

/// A receiver's side of a lease.
struct Borrowed {
  SharedBlock lease;
  std::shared_ptr<void> mapped;
  c10::DeviceIndex device;
  std::mutex opening = {};
  std::unique_ptr<CUDAEvent> ready = nullptr;  ///< The owner's, which a lease has one of; opened when first waited for.
};

/// Of LibTorch's mappings: it takes the last one's end and a new one's begin, at the same time, for an error.
std::mutex& mapping() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

/// What the current stream was given is done before the owner may use the memory again.
void give_back(void* context) {
  std::unique_ptr<Borrowed> borrowed(static_cast<Borrowed*>(context));
  try {
    const c10::cuda::CUDAGuard guard(borrowed->device);
    // Not by CUDAStream, which where it warns of synchronisation may throw before it has synchronised.
    if (cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream()) == cudaSuccess) {
      const std::lock_guard lock(mapping());
      borrowed->mapped.reset();
      return;
    }
    static_cast<void>(cudaGetLastError());
  } catch (const c10::Error&) {
  }
  // The driver is shut down, as the process ends, or broken by a failed kernel, or the stream is captured: work may go
  // on, and to unmap may fail where it must not throw. This process's end gives it back.
  static_cast<void>(borrowed.release());
}

/// Null for a storage of this process's own.
Borrowed* borrowed_of(const c10::Storage& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  return data.get_deleter() == &give_back ? static_cast<Borrowed*>(data.get_context()) : nullptr;
}

void let_go_at_exit();

/// What this process lends.
class LentStorages {
 public:
  /// Never destroyed: receivers are waited for at exit, when statics may be gone.
  static LentStorages& get() {
    static auto* const lent = new LentStorages;
    return *lent;
  }

  /// The lease, and the event behind which the memory is ready; none where it is ready now.
  std::pair<SharedBlock, std::optional<cudaIpcEventHandle_t>> lend(const c10::Storage& storage) {
    collect();
    const SharedBlock lease = lease_for(storage);
    remember_storage(lease, storage);
    return {lease, mark(storage)};
  }

  /// Lets this thread's current stream wait until what was lent is ready; for the owner, who gets it back.
  void await(const c10::Storage& storage) {
    const std::lock_guard lock(mutex_);
    const auto lent = lent_.find(storage.unsafeGetStorageImpl());
    if (lent != lent_.end() && lent->second.ready) lent->second.ready->block(c10::cuda::getCurrentCUDAStream());
  }

  /// Of one device, or of all. Threads: also called by LibTorch's allocator, which holds the lock of its device.
  bool collect(std::optional<c10::DeviceIndex> device = std::nullopt) {
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

  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return lent_.size();
  }
  /// A process that was forked from the lender's is not.
  bool is_of_this_process() const { return getpid() == process_; }

 private:
  static constexpr unsigned kEventFlags = cudaEventDisableTiming | cudaEventInterprocess;

  struct Lent {
    std::weak_ptr<JobMemory> memory;
    BlockHandle lease;
    c10::Storage storage;
    const void* data;  ///< Whose lease it is: a storage may be given other memory.
    std::unique_ptr<CUDAEvent> ready;
  };

  LentStorages() {
    std::atexit(&let_go_at_exit);
    std::at_quick_exit(&let_go_at_exit);
  }

  /// The one that it has, or a new one.
  SharedBlock lease_for(const c10::Storage& storage) {
    const std::lock_guard lending(lending_);
    SharedBlock lease = lease_of(storage);
    if (lease) return lease;
    lease = make_lease(storage);
    const std::lock_guard lock(mutex_);
    lent_.insert_or_assign(storage.unsafeGetStorageImpl(),
                           Lent{lease.memory(), lease.handle(), storage, storage.data(),
                                lent_.size() < kMostEvents ? std::make_unique<CUDAEvent>(kEventFlags) : nullptr});
    return lease;
  }

  /// Empty where it has none, or its last holder just let go.
  SharedBlock lease_of(const c10::Storage& storage) {
    const std::lock_guard lock(mutex_);
    const auto lent = lent_.find(storage.unsafeGetStorageImpl());
    if (lent == lent_.end()) return {};
    const auto memory = lent->second.memory.lock();
    if (memory != JobMemory::current() || lent->second.data != storage.data()) return {};
    try {
      return SharedBlock::hold(memory, lent->second.lease);
    } catch (const UsageError&) {
      return {};
    }
  }

  /// Whoever waits for the event from now on waits for all that the current stream has to do.
  std::optional<cudaIpcEventHandle_t> mark(const c10::Storage& storage) {
    const auto stream = c10::cuda::getCurrentCUDAStream();
    {
      const std::lock_guard lock(mutex_);
      std::unique_ptr<CUDAEvent>& ready = lent_.at(storage.unsafeGetStorageImpl()).ready;
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

  std::mutex lending_;  ///< One lease for one storage. Taken before the allocator's lock, and that before the next one.
  std::mutex mutex_;
  std::unordered_map<const c10::StorageImpl*, Lent> lent_;
  const pid_t process_ = getpid();
};

/// What others have mapped would be pulled from under them.
void let_go_at_exit() {
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
             " CUDA storages that it sent are in use or on their way: their memory ends with it. Let it live until its "
             "receivers have let go, or send tensor.cpu()");
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

/// Also where nobody has waited for it yet.
bool has_ended(pid_t process) {
  const int pidfd = pidfd_open(process, 0);
  if (pidfd < 0) return errno == ESRCH;
  pollfd ended{.fd = pidfd, .events = POLLIN, .revents = 0};
  const bool has_ended = poll(&ended, 1, 0) > 0;
  close(pidfd);
  return has_ended;
}

/// What an error of the driver is, where it may come of the owner's end.
std::string reason(const Lease& lease, const c10::Error& error) {
  return c10::str(has_ended(lease.owner) ? "; that process has ended, and its memory with it: let a sender live until "
                                           "its receivers have let go, or send tensor.cpu()"
                                         : "",
                  ": ", error.what_without_backtrace());
}

c10::Storage map(const SharedBlock& block, const Lease& lease, c10::DeviceIndex device) {
  std::shared_ptr<void> mapped;
  try {
    const std::lock_guard lock(mapping());
    mapped = c10::cuda::CUDACachingAllocator::getIpcDevPtr(lease.handle);
  } catch (const c10::Error& error) {
    throw UsageError(
        c10::str("receiving a tensor: mapping CUDA memory of process ", lease.owner, " failed", reason(lease, error)));
  }
  void* const data = static_cast<char*>(mapped.get()) + lease.offset;
  auto* const context = new Borrowed{block, std::move(mapped), device};
  return c10::Storage(c10::Storage::use_byte_size_t(), lease.bytes,
                      c10::DataPtr(data, context, &give_back, c10::Device(c10::kCUDA, device)),
                      /*allocator=*/nullptr, /*resizable=*/false);
}

/// Lets this thread's current stream wait for the owner's.
void await(Borrowed& borrowed, const Lease& lease, const cudaIpcEventHandle_t& ready) {
  try {
    const std::lock_guard lock(borrowed.opening);
    if (borrowed.ready == nullptr) borrowed.ready = std::make_unique<CUDAEvent>(borrowed.device, &ready);
    borrowed.ready->block(c10::cuda::getCurrentCUDAStream());
  } catch (const c10::Error& error) {
    // An owner that ended may have done half of it.
    throw UsageError(c10::str("receiving a tensor: waiting for the work of process ", lease.owner, " on it failed",
                              reason(lease, error)));
  }
}

/// Until the memory is as the current stream, and the owner, leave it.
void await_all_work(Borrowed& borrowed) {
  const std::lock_guard lock(borrowed.opening);
  if (borrowed.ready != nullptr) borrowed.ready->synchronize();  // Another stream may be the one that waits for it.
  c10::cuda::getCurrentCUDAStream().synchronize();
}

/// A process that has not used CUDA yet has neither an allocator nor devices.
void begin_to_use_cuda() {
  try {
    at::globalContext().lazyInitDevice(c10::kCUDA);
  } catch (const c10::Error& error) {
    throw UsageError(
        c10::str("receiving a tensor: it is on CUDA, which this process cannot use: ", error.what_without_backtrace()));
  }
}

}  // namespace

void write_cuda_storage(detail::ValueOutput& output, const c10::Storage& storage) {
  const c10::cuda::CUDAGuard guard(storage.device().index());
  if (storage.nbytes() == 0) {
    const DeviceUuid uuid = uuid_of(storage.device().index());
    return output.write(&uuid, sizeof uuid);
  }
  storage.unsafeGetStorageImpl()->set_resizable(false);  // Others would not see it grow.
  if (Borrowed* const borrowed = borrowed_of(storage)) {
    // An event of this process could be gone before the message is read.
    await_all_work(*borrowed);
    output(borrowed->lease, false);
    return;
  }
  if (output.purpose() == detail::Purpose::kReturned)
    throw UsageError(
        c10::str("returning a tensor: it is on ", storage.device().str(),
                 ", and its memory ends with this process: return tensor.cpu(), or send it through a queue "
                 "and end when its receiver is done with it"));
  const auto [lease, ready] = LentStorages::get().lend(storage);
  output(lease, ready.has_value());
  if (ready) output.write(&*ready, sizeof *ready);
}

c10::Storage read_cuda_storage(detail::ValueInput& input, std::size_t bytes) {
  begin_to_use_cuda();
  if (bytes == 0) {
    DeviceUuid uuid{};
    input.read(&uuid, sizeof uuid);
    const c10::Device device(c10::kCUDA, device_with(uuid));
    return c10::Storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, device));
  }
  SharedBlock block;
  bool has_event = false;
  input(block, has_event);
  cudaIpcEventHandle_t ready{};
  if (has_event) input.read(&ready, sizeof ready);
  const Lease lease = lease_in(block);
  if (bytes > lease.bytes)
    throw UsageError("receiving a tensor: it would reach outside its storage: the message was not written by Retinue");
  const c10::DeviceIndex device = device_with(lease.device);
  const c10::cuda::CUDAGuard guard(device);
  c10::Storage storage = known_storage(block, bytes, [&] { return map(block, lease, device); });
  Borrowed* const borrowed = borrowed_of(storage);
  if (borrowed == nullptr) {
    LentStorages::get().await(storage);
  } else if (has_event) {
    await(*borrowed, lease, ready);
  }
  return storage;
}

bool collect_cuda_storages() {
  return LentStorages::get().collect();
}

}  // namespace retinue

namespace c10 {
REGISTER_FREE_MEMORY_CALLBACK("retinue_collect", retinue::CollectCallback)
}  // namespace c10
