#include "torch/tensors/shared_storage.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/StringUtil.h>
#include <c10/util/intrusive_ptr.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "retinue/base/error.h"

namespace retinue {
namespace {

void delete_block(void* context) {
  delete static_cast<SharedBlock*>(context);
}

/// The blocks of this process that are known by their memory alone.
class RawBlocks {
 public:
  /// Never destroyed: static tensors may outlive everything.
  static RawBlocks& get() {
    static auto* const blocks = new RawBlocks;
    return *blocks;
  }

  void add(SharedBlock block) {
    const std::lock_guard lock(mutex_);
    const void* const data = block.data();
    blocks_.insert_or_assign(data, std::move(block));
  }
  /// For as long as the block isn't taken.
  const SharedBlock& at(const void* data) {
    const std::lock_guard lock(mutex_);
    return blocks_.at(data);
  }
  /// Empty: there is none.
  SharedBlock take(const void* data) {
    const std::lock_guard lock(mutex_);
    auto node = blocks_.extract(data);
    return node ? std::move(node.mapped()) : SharedBlock();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, SharedBlock> blocks_;
};

void delete_raw_block(void* data) {
  free_shared_raw(data);
}

c10::DataPtr data_of(const SharedBlock& block) {
  return {block.data(), new SharedBlock(block), &delete_block, c10::Device(c10::kCPU)};
}

void copy(std::byte* to, const std::byte* from, std::size_t bytes, const std::function<void()>& announce) {
  // A sleeper takes as long to get up as 256 KiB to be copied, at least; the last 1 MiB takes some 100 us.
  constexpr std::size_t kLongest = std::size_t{1} << 20;
  constexpr std::size_t kShortest = std::size_t{256} << 10;
  const std::size_t first = bytes > kLongest ? bytes - kLongest : 0;
  std::memcpy(to, from, first);
  if (bytes >= kShortest) announce();
  std::memcpy(to + first, from + first, bytes - first);
}

/// Which storages stand for which blocks in this process, as long as they live.
class KnownStorages {
 public:
  /// Never destroyed: static tensors may outlive everything.
  static KnownStorages& get() {
    static auto* const known = new KnownStorages;
    return *known;
  }

  void remember(const SharedBlock& block, const c10::Storage& storage) {
    const std::lock_guard lock(mutex_);
    const auto known = storages_.find(block.data());
    const bool is_known = known != storages_.end() && known->second.handle == block.handle() &&
                          known->second.data == storage.data() && known->second.impl == storage.unsafeGetStorageImpl();
    if (!is_known) note(block.data(), block.handle(), storage);
  }

  /// `memory`: where the block is in this process.
  template <typename Make>
  c10::Storage find_or_make(const std::byte* memory, const BlockHandle& handle, std::size_t bytes, const Make& make) {
    const std::lock_guard lock(mutex_);
    const auto known = storages_.find(memory);
    // Who has the storage may have given it other memory since.
    if (known != storages_.end() && known->second.handle == handle)
      if (auto storage = known->second.storage.lock();
          storage && storage->data() == known->second.data && storage->nbytes() >= bytes)
        return c10::Storage(std::move(storage));
    c10::Storage made = make();
    note(memory, handle, made);
    return made;
  }

 private:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
  struct Known {
    BlockHandle handle;
    const void* data;
    const c10::StorageImpl* impl;  ///< Which is not freed while `storage` refers to it.
    WeakStorage storage;
  };

  void note(const std::byte* memory, const BlockHandle& handle, const c10::Storage& storage) {
    storages_.insert_or_assign(
        memory, Known{handle, storage.data(), storage.unsafeGetStorageImpl(), storage.getWeakStorageImpl()});
    if (storages_.size() >= next_sweep_) sweep();
  }
  void sweep() {
    std::erase_if(storages_, [](const auto& entry) { return entry.second.storage.use_count() == 0; });
    next_sweep_ = std::max<std::size_t>(kFirstSweep, 2 * storages_.size());
  }

  static constexpr std::size_t kFirstSweep = 256;
  std::mutex mutex_;
  std::size_t next_sweep_ = kFirstSweep;
  std::unordered_map<const std::byte*, Known> storages_;
};

}  // namespace

c10::DataPtr allocate_shared(const std::shared_ptr<JobMemory>& memory, std::size_t bytes) {
  if (bytes == 0) return {nullptr, nullptr, &delete_block, c10::Device(c10::kCPU)};
  return data_of(SharedBlock::allocate(memory, bytes));
}

c10::DataPtr allocate_shared_raw(const std::shared_ptr<JobMemory>& memory, std::size_t bytes) {
  if (bytes == 0) return allocate_shared(memory, 0);
  SharedBlock block = SharedBlock::allocate(memory, bytes);
  std::byte* const data = block.data();
  RawBlocks::get().add(std::move(block));
  return {data, data, &delete_raw_block, c10::Device(c10::kCPU)};
}

bool free_shared_raw(const void* data) {
  return static_cast<bool>(RawBlocks::get().take(data));
}

bool is_shared(const c10::DataPtr& data) {
  return data.get_context() && (data.get_deleter() == &delete_block || data.get_deleter() == &delete_raw_block);
}

c10::DataPtr share_storage(const c10::Storage& storage, const std::shared_ptr<JobMemory>& memory,
                           const std::function<void()>& announce) {
  if (storage.device_type() != c10::kCPU)
    throw UsageError(c10::str("sharing a tensor: it is on ", storage.device().str(),
                              "; job memory holds CPU tensors: move it with tensor.cpu()"));
  if (storage.nbytes() == 0) return {};
  c10::StorageImpl* const own = storage.unsafeGetStorageImpl();
  if (storage.data() == nullptr)
    throw UsageError(
        c10::str("sharing a tensor: its storage of ", storage.nbytes(),
                 " bytes has no memory, like the tensors of zeros that autograd makes: send tensor.clone()"));
  if (is_shared(storage.data_ptr())) {
    own->set_resizable(false);  // It would grow out of its block, and others would not see it.
    return {};
  }
  c10::DataPtr shared = allocate_shared(memory, storage.nbytes());
  own->set_resizable(false);  // Only now: after an error nothing has changed.
  copy(static_cast<std::byte*>(shared.get()), static_cast<const std::byte*>(storage.data()), storage.nbytes(),
       announce);
  return own->set_data_ptr(std::move(shared));
}

void unshare_storage(const c10::Storage& storage, bool is_resizable) noexcept {
  c10::StorageImpl* const own = storage.unsafeGetStorageImpl();
  try {
    c10::DataPtr memory = c10::GetCPUAllocator()->allocate(storage.nbytes());
    std::memcpy(memory.get(), storage.data(), storage.nbytes());
    own->set_data_ptr_noswap(std::move(memory));
    own->set_resizable(is_resizable);
  } catch (const std::exception&) {
    // There is no memory: what is shared is as good.
  }
}

const SharedBlock& sent_block(const c10::Storage& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  const SharedBlock& block = data.get_deleter() == &delete_raw_block
                                 ? RawBlocks::get().at(data.get_context())
                                 : *static_cast<const SharedBlock*>(data.get_context());
  remember_storage(block, storage);
  return block;
}

c10::Storage received_storage(const std::shared_ptr<JobMemory>& memory, const BlockHandle& handle, std::size_t bytes) {
  if (handle.offset >= memory->capacity_bytes())
    throw UsageError("receiving a tensor: its handle is outside of job memory");
  return KnownStorages::get().find_or_make(memory->at(handle.offset), handle, bytes, [&] {
    return c10::Storage(c10::Storage::use_byte_size_t(), bytes, data_of(SharedBlock::hold(memory, handle)),
                        /*allocator=*/nullptr, /*resizable=*/false);
  });
}

void remember_storage(const SharedBlock& block, const c10::Storage& storage) {
  KnownStorages::get().remember(block, storage);
}

c10::Storage known_storage(const SharedBlock& block, std::size_t bytes, const std::function<c10::Storage()>& make) {
  return KnownStorages::get().find_or_make(block.data(), block.handle(), bytes, make);
}

}  // namespace retinue
