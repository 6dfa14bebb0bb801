#include "ipc/records/progress_record.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>

#include "ipc/memory/job_layout.h"
#include "ipc/memory/process_table.h"

namespace retinue {
namespace {

static_assert(sizeof(ProgressRecord) <= 4096);

std::mutex& progress_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

/// This process's record, which is made when it is missing; null without a slot.
ProgressRecord* own_progress_record(JobMemory& memory) {
  if (memory.own_slot() == JobMemory::kNoSlot || !memory.is_of_this_process()) return nullptr;
  ProcessSlot& slot = process_slot(memory, memory.own_slot());
  if (const std::uint64_t there = slot.progress.load(std::memory_order_relaxed); there != 0)
    return memory.at<ProgressRecord>(there);
  const std::uint64_t offset = memory.allocate(sizeof(ProgressRecord), BlockUse::kRuntime).offset;
  auto* const record = memory.at<ProgressRecord>(offset);
  std::memset(static_cast<void*>(record), 0, sizeof *record);
  record->magic.store(kProgressMagic, std::memory_order_release);
  slot.progress.store(offset, std::memory_order_release);
  return record;
}

StepSums read_sums(const ProgressRecord& record) {
  // A writer that is in the middle of it is done at once, unless it was killed there.
  constexpr int kLooks = 1000;
  StepSums sums;
  std::uint64_t* const to[] = {&sums.steps,      &sums.total_ns,   &sums.data_ns,
                               &sums.compute_ns, &sums.waiting_ns, &sums.communication_ns};
  for (int look = 0; look < kLooks; ++look) {
    const std::uint64_t before = record.writes.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < std::size(to); ++i) *to[i] = record.sums[i].load(std::memory_order_acquire);
    if (before % 2 == 0 && record.writes.load(std::memory_order_relaxed) == before) return sums;
  }
  return {};
}

}  // namespace

void tell_step_sums(JobMemory& memory, const StepSums& sums) {
  const std::lock_guard lock(progress_mutex());
  ProgressRecord* const record = own_progress_record(memory);
  if (record == nullptr) return;
  const std::uint64_t from[] = {sums.steps,      sums.total_ns,   sums.data_ns,
                                sums.compute_ns, sums.waiting_ns, sums.communication_ns};
  // Pairs with read_sums(): who reads one of the sums sees that `writes` is odd, or the sums of another write.
  record->writes.fetch_add(1, std::memory_order_acq_rel);
  for (std::size_t i = 0; i < std::size(from); ++i) record->sums[i].store(from[i], std::memory_order_release);
  record->writes.fetch_add(1, std::memory_order_release);
}

void tell_scalar_file(const std::string& path) {
  if (JobMemory::current_or_null() == nullptr) return;
  const std::lock_guard lock(progress_mutex());
  ProgressRecord* const record = own_progress_record(*JobMemory::current());
  if (record == nullptr || path.size() >= kScalarFileBytes) return;
  const std::uint32_t count = record->file_count.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < count; ++i)
    if (path == record->files[i]) return;
  if (count == kScalarFiles) return;
  std::memcpy(record->files[count], path.c_str(), path.size() + 1);
  record->file_count.store(count + 1, std::memory_order_release);
}

std::optional<Progress> read_progress(const JobMemory& memory, std::uint32_t index) {
  const std::uint64_t offset = process_slot(memory, index).progress.load(std::memory_order_acquire);
  if (offset == 0 || offset % alignof(ProgressRecord) != 0 || offset > memory.capacity_bytes() ||
      memory.capacity_bytes() - offset < sizeof(ProgressRecord))
    return std::nullopt;
  const auto& record = *memory.at<ProgressRecord>(offset);
  if (record.magic.load(std::memory_order_acquire) != kProgressMagic) return std::nullopt;
  Progress progress{.sums = read_sums(record), .scalar_files = {}};
  const std::size_t count = std::min<std::size_t>(kScalarFiles, record.file_count.load(std::memory_order_acquire));
  for (std::size_t i = 0; i < count; ++i)
    progress.scalar_files.emplace_back(record.files[i], strnlen(record.files[i], kScalarFileBytes));
  return progress;
}

}  // namespace retinue
