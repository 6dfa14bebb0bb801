#include "torch/tensors/tensor_slots.h"

#include <torch/csrc/autograd/graph_task.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "torch/tensors/allocator_in_front.h"
#include "torch/tensors/shared_storage.h"

namespace retinue {
namespace {

constexpr std::size_t kAlignment = 64;
/// To copy a smaller gradient costs less than to look for its slot; and backward makes many small tensors of each size.
constexpr std::size_t kSmallestFound = std::size_t{16} << 10;

std::size_t padded(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void delete_slot(void* data) {
  free_slot(data);
}

}  // namespace

struct TensorSlots::Pool {
  c10::DataPtr memory;
  std::size_t bytes = 0;
  std::unordered_map<const void*, std::size_t> size_of = {};
  std::unordered_map<std::size_t, std::vector<void*>> free = {};  ///< By size.
  std::size_t taken = 0;
  bool is_owned = true;
  pid_t process = getpid();  ///< A fork of it has the same memory, and must not write there.

  bool contains(const void* data) const {
    const auto* const begin = static_cast<const std::byte*>(memory.get());
    return data >= begin && data < begin + bytes;
  }
  void* take(std::size_t size) {
    if (process != getpid()) return nullptr;
    const auto found = free.find(size);
    if (found == free.end() || found->second.empty()) return nullptr;
    void* const data = found->second.back();
    found->second.pop_back();
    ++taken;
    return data;
  }
};

namespace {

class Pools {
 public:
  /// Never destroyed: static tensors may outlive everything.
  static Pools& get() {
    static auto* const pools = new Pools;
    return *pools;
  }

  bool are_none() const { return count_.load(std::memory_order_relaxed) == 0; }

  TensorSlots::Pool* add(TensorSlots::Pool pool) {
    const std::lock_guard lock(mutex_);
    pools_.push_back(std::make_unique<TensorSlots::Pool>(std::move(pool)));
    count_.store(pools_.size(), std::memory_order_relaxed);
    return pools_.back().get();
  }
  void disown(TensorSlots::Pool* pool) {
    const std::lock_guard lock(mutex_);
    pool->is_owned = false;
    remove_if_unused(*pool);
  }
  void* take(TensorSlots::Pool& pool, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    return pool.take(bytes);
  }
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (const auto& pool : pools_)
      if (void* const data = pool->is_owned ? pool->take(bytes) : nullptr) return data;
    return nullptr;
  }
  bool give_back(void* data) {
    const std::lock_guard lock(mutex_);
    TensorSlots::Pool* const pool = find(data);
    if (pool == nullptr) return false;
    pool->free[pool->size_of.at(data)].push_back(data);
    --pool->taken;
    remove_if_unused(*pool);
    return true;
  }
  bool contains(const void* data) {
    const std::lock_guard lock(mutex_);
    return find(data) != nullptr;
  }

 private:
  TensorSlots::Pool* find(const void* data) {
    const auto found = std::ranges::find_if(pools_, [&](const auto& pool) { return pool->contains(data); });
    return found == pools_.end() ? nullptr : found->get();
  }
  void remove_if_unused(const TensorSlots::Pool& pool) {
    if (pool.is_owned || pool.taken > 0) return;
    std::erase_if(pools_, [&](const auto& entry) { return entry.get() == &pool; });
    count_.store(pools_.size(), std::memory_order_relaxed);
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<TensorSlots::Pool>> pools_;
  std::atomic<std::size_t> count_ = 0;
};

c10::DataPtr data_of(void* slot) {
  return slot == nullptr ? c10::DataPtr() : c10::DataPtr(slot, slot, &delete_slot, c10::Device(c10::kCPU));
}

}  // namespace

TensorSlots::TensorSlots(const std::shared_ptr<JobMemory>& memory, const std::vector<std::size_t>& bytes) {
  Pool pool;
  for (const std::size_t size : bytes) pool.bytes += padded(size);
  pool.memory = allocate_shared(memory, pool.bytes);
  auto* next = static_cast<std::byte*>(pool.memory.get()) + pool.bytes;
  // The first is found first.
  for (std::size_t i = bytes.size(); i-- > 0;) {
    next -= padded(bytes[i]);
    if (bytes[i] == 0) continue;
    pool.size_of[next] = bytes[i];
    pool.free[bytes[i]].push_back(next);
  }
  pool_ = Pools::get().add(std::move(pool));
  AllocatorInFront::install();
}

TensorSlots::~TensorSlots() {
  Pools::get().disown(pool_);
}

c10::DataPtr TensorSlots::take(std::size_t bytes) {
  return data_of(Pools::get().take(*pool_, bytes));
}

bool TensorSlots::contains(const void* data) {
  return Pools::get().contains(data);
}

c10::DataPtr take_slot_in_backward(std::size_t bytes) {
  if (bytes < kSmallestFound || Pools::get().are_none()) return {};
  if (torch::autograd::get_current_graph_task_id() == -1) return {};
  return data_of(Pools::get().take(bytes));
}

bool free_slot(void* data) {
  return !Pools::get().are_none() && Pools::get().give_back(data);
}

}  // namespace retinue
