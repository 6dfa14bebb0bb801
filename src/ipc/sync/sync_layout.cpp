#include "ipc/sync/sync_layout.h"

#include <fmt/format.h>

#include <cstring>

#include "retinue/base/error.h"
#include "retinue/ipc/detail/value_archive.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {
namespace {

const char* name_of(SyncKind kind) {
  switch (kind) {
    case SyncKind::kLock:
      return "Lock";
    case SyncKind::kRLock:
      return "RLock";
    case SyncKind::kSemaphore:
      return "Semaphore";
    case SyncKind::kBoundedSemaphore:
      return "BoundedSemaphore";
    case SyncKind::kEvent:
      return "Event";
    case SyncKind::kCondition:
      return "Condition";
    case SyncKind::kBarrier:
      return "Barrier";
  }
  return "unknown object";
}

}  // namespace

void lay_out_sync_block(const SharedBlock& block, SyncKind kind, std::size_t bytes) {
  std::memset(block.data(), 0, bytes);
  auto& header = *reinterpret_cast<SyncHeader*>(block.data());
  header.magic = SyncHeader::kMagic;
  header.kind = kind;
}

SharedBlock make_sync_block(const std::shared_ptr<JobMemory>& memory, SyncKind kind, std::size_t bytes) {
  SharedBlock block = SharedBlock::allocate(memory, bytes);
  lay_out_sync_block(block, kind, bytes);
  return block;
}

void check_sync_block(const SharedBlock& block, SyncKind kind) {
  const auto* header = reinterpret_cast<const SyncHeader*>(block.data());
  const bool is_one = block.bytes() >= sizeof(SyncHeader) && header->magic == SyncHeader::kMagic;
  if (is_one && header->kind == kind) return;
  throw UsageError(fmt::format("{} was received as a {}: use the same type on both sides",
                               is_one ? name_of(header->kind) : "something else", name_of(kind)));
}

bool detail::SyncHandle::is_to_be_made() noexcept {
  const JobMemory* const memory = JobMemory::current_or_null();
  return memory != nullptr && memory->is_of_this_process() && !ReadScope::is_any();
}

void detail::SyncHandle::check(const SharedBlock& block) const {
  if (block) check_sync_block(block, kind_);
}

void throw_no_sync_object(const char* object) {
  throw UsageError(
      fmt::format("this {} is empty: it was made without its arguments, before the Runtime or after a fork(), or was "
                  "moved from; assign one to it, or get it as an argument",
                  object));
}

void throw_short_sync_block(const char* object) {
  throw UsageError(fmt::format("the block of this {} is too short for it: job memory was overwritten", object));
}

}  // namespace retinue
