#include "torch/tensors/cuda_storage.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/StringUtil.h>
#include <cuda_runtime_api.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "retinue/base/error.h"
#include "retinue/ipc/shared_block.h"
#include "torch/tensors/cuda/cuda_lease.h"
#include "torch/tensors/cuda/lent_storages.h"
#include "torch/tensors/shared_storage.h"

namespace retinue {
namespace {

using c10::cuda::CUDAEvent;

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
void release_borrowed(void* context) {
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
  return data.get_deleter() == &release_borrowed ? static_cast<Borrowed*>(data.get_context()) : nullptr;
}

/// Also where nobody has waited for it yet.
bool has_ended(pid_t process) {
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (pidfd < 0) return errno == ESRCH;
  pollfd ended{.fd = pidfd, .events = POLLIN, .revents = 0};
  const bool has_ended = poll(&ended, 1, 0) > 0;
  close(pidfd);
  return has_ended;
}

/// What an error of the driver is, where it may come of the owner's end.
std::string reason(const Lease& lease, const c10::Error& error) {
  return c10::str(has_ended(lease.owner) ? "; that process has ended, which freed the memory: keep the sender running "
                                           "until its receivers have released the tensor, or send tensor.cpu()"
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
                      c10::DataPtr(data, context, &release_borrowed, c10::Device(c10::kCUDA, device)),
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
    throw UsageError(c10::str("receiving a tensor: waiting for the CUDA work of process ", lease.owner, " on it failed",
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
    throw UsageError(c10::str("receiving a tensor: it is a CUDA tensor, but this process cannot use CUDA: ",
                              error.what_without_backtrace()));
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
