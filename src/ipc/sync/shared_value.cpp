#include "retinue/ipc/shared_value.h"

#include <fmt/format.h>

#include "ipc/sync/sync_layout.h"
#include "retinue/base/error.h"

namespace retinue::detail {
namespace {

constexpr std::size_t kLockBytes = 128;
static_assert(sizeof(LockState) <= kLockBytes);

std::size_t bytes_for(std::size_t count, std::size_t value_bytes, std::size_t offset) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 62;
  if (count > (kMostBytes - offset) / value_bytes)
    throw SharedMemoryExhausted(
        fmt::format("an Array of {} values of {} bytes is larger than any memory", count, value_bytes));
  return offset + count * value_bytes;
}

}  // namespace

LockedValues::LockedValues(const std::shared_ptr<JobMemory>& memory, std::uint64_t type, std::size_t count,
                           std::size_t value_bytes, std::size_t align, const RLock& lock) {
  const std::size_t offset = std::max(kLockBytes, align);
  block_ = SharedBlock::allocate(memory, bytes_for(count, value_bytes, offset));
  lock_ = RLock::lay_out(block_);
  auto& header = *reinterpret_cast<SyncHeader*>(block_.data());
  header.type = type;
  header.offset = static_cast<std::uint32_t>(offset);
  if (lock) lock_ = lock;
}

std::byte* LockedValues::data() const {
  return block_.data() + sync_state<SyncHeader>(block_, "Value or Array").offset;
}

void LockedValues::check(std::uint64_t type, std::size_t least_bytes, std::size_t align) const {
  if (!block_) return;
  check_sync_block(block_, SyncKind::kRLock);
  const auto& header = *reinterpret_cast<const SyncHeader*>(block_.data());
  if (header.type != type)
    throw UsageError("a Value or Array was received as another type: use the same type on both sides");
  const bool is_inside = header.offset >= kLockBytes && header.offset % align == 0 && header.offset <= block_.bytes() &&
                         block_.bytes() - header.offset >= least_bytes;
  if (!is_inside)
    throw UsageError(fmt::format("a Value or Array at {} of a block of {} bytes: job memory was overwritten",
                                 header.offset, block_.bytes()));
}

void throw_bad_index(std::size_t index, std::size_t size) {
  throw UsageError(fmt::format("index {} is outside of an Array of {} elements", index, size));
}

}  // namespace retinue::detail
