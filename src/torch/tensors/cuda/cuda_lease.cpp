#include "torch/tensors/cuda/cuda_lease.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/StringUtil.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "retinue/base/error.h"

namespace retinue {
namespace {

/// A lease as it lies in its block; the handle follows.
struct LeaseHeader {
  std::int32_t owner;
  DeviceUuid device;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t handle_bytes;
};

/// By device index.
const std::vector<DeviceUuid>& all_uuids() {
  static const auto all = [] {
    std::vector<DeviceUuid> uuids;
    for (c10::DeviceIndex device = 0; device < c10::cuda::device_count(); ++device) {
      cudaDeviceProp properties{};
      C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
      static_assert(sizeof(DeviceUuid) == sizeof properties.uuid.bytes);
      std::memcpy(uuids.emplace_back().data(), properties.uuid.bytes, sizeof(DeviceUuid));
    }
    return uuids;
  }();
  return all;
}

}  // namespace

DeviceUuid uuid_of(c10::DeviceIndex device) {
  return all_uuids().at(static_cast<std::size_t>(device));
}

c10::DeviceIndex device_with(const DeviceUuid& uuid) {
  const auto& uuids = all_uuids();
  for (std::size_t device = 0; device < uuids.size(); ++device)
    if (uuids[device] == uuid) return static_cast<c10::DeviceIndex>(device);
  throw UsageError(c10::str("receiving a tensor: the GPU that it was sent from is not one of the ", uuids.size(),
                            " that this process sees: give both the same CUDA_VISIBLE_DEVICES"));
}

Lease lease_in(const SharedBlock& block) {
  LeaseHeader header{};
  if (block.bytes() >= sizeof header) std::memcpy(&header, block.data(), sizeof header);
  if (block.bytes() < sizeof header || header.handle_bytes > block.bytes() - sizeof header)
    throw UsageError("receiving a tensor: its lease is damaged: the message was not written by Retinue");
  const char* const handle = reinterpret_cast<const char*>(block.data() + sizeof header);
  return {header.owner, header.device, header.offset, header.bytes, std::string(handle, header.handle_bytes)};
}

SharedBlock make_lease(const c10::Storage& storage) {
  c10::cuda::CUDACachingAllocator::ShareableHandle shared;
  try {
    shared = c10::cuda::CUDACachingAllocator::shareIpcHandle(storage.mutable_data());
  } catch (const c10::Error& error) {
    throw UsageError(c10::str("sending a tensor: its memory on ", storage.device().str(),
                              " does not come from LibTorch's CUDA allocator, or the driver can't share it; send "
                              "tensor.clone(): ",
                              error.what_without_backtrace()));
  }
  const LeaseHeader header{
      .owner = getpid(),
      .device = uuid_of(storage.device().index()),
      .offset = static_cast<std::uint64_t>(shared.offset),
      .bytes = storage.nbytes(),
      .handle_bytes = shared.handle.size(),
  };
  SharedBlock block = SharedBlock::allocate(sizeof header + shared.handle.size());
  std::memcpy(block.data(), &header, sizeof header);
  std::memcpy(block.data() + sizeof header, shared.handle.data(), shared.handle.size());
  return block;
}

}  // namespace retinue
