#include "retinue/ipc/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "ipc/memory/job_clock.h"
#include "ipc/memory/job_end.h"
#include "ipc/memory/job_layout.h"
#include "os/sync/futex.h"

namespace retinue::detail {
namespace {

/// Names are few and seldom changed: who waits for one sleeps until the next is published.
constexpr std::chrono::milliseconds kLookUp{100};

std::string_view name_of(const PublishedName& published) {
  return {published.name, strnlen(published.name, sizeof published.name)};
}

bool is_used(const PublishedName& published) {
  return published.used.load(std::memory_order_acquire) != 0;
}

/// The entry of that name whose block is alive. Called with the lock held.
PublishedName* find(const JobMemory& memory, std::string_view name) {
  for (PublishedName& published : memory.header().published.names)
    if (is_used(published) && name_of(published) == name && memory.is_held(published.block)) return &published;
  return nullptr;
}

SharedBlock hold_if_there(const std::shared_ptr<JobMemory>& memory, const std::string& name) {
  const RobustLock lock(memory->header().published.mutex, memory->lock_patience());
  const PublishedName* const found = find(*memory, name);
  if (found == nullptr) return {};
  try {
    return SharedBlock::hold(memory, found->block);
  } catch (const UsageError&) {
    return {};  // Its last holder let it go just now.
  }
}

}  // namespace

void publish_block(const SharedBlock& block, const std::string& name) {
  if (name.empty() || name.size() >= PublishedName::kNameBytes || name.find('\0') != std::string::npos)
    throw UsageError(fmt::format("publish: '{}' cannot be a name: it must have 1 to {} bytes, none of them zero", name,
                                 PublishedName::kNameBytes - 1));
  const JobMemory& memory = *block.memory();
  PublishedNames& registry = memory.header().published;
  // A holder that died left an entry that is used or not: there is nothing to repair.
  const RobustLock lock(registry.mutex, memory.lock_patience());
  if (const PublishedName* const other = find(memory, name); other != nullptr) {
    if (other->block == block.handle()) return;
    throw UsageError(fmt::format("publish: another object of the job has the name '{}'", name));
  }
  const auto unused = std::ranges::find_if(registry.names, [&](const PublishedName& published) {
    return !is_used(published) || !memory.is_held(published.block);
  });
  if (unused == std::end(registry.names))
    throw UsageError(fmt::format("publish '{}': the job has {} names already", name, std::size(registry.names)));
  unused->used.store(0, std::memory_order_release);
  unused->block = block.handle();
  std::memset(unused->name, 0, sizeof unused->name);
  std::memcpy(unused->name, name.data(), name.size());
  unused->used.store(1, std::memory_order_release);
  registry.changes.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(registry.changes);
}

SharedBlock find_published(const std::shared_ptr<JobMemory>& memory, const std::string& name,
                           std::chrono::nanoseconds timeout) {
  const std::atomic<std::uint32_t>& changes = memory->header().published.changes;
  const JobDeadline deadline = JobDeadline::after(memory->header(), timeout);
  for (;;) {
    const std::uint32_t seen = changes.load(std::memory_order_seq_cst);
    if (SharedBlock block = hold_if_there(memory, name)) return block;
    if (deadline.passed()) throw TimeoutError(fmt::format("no object of the job has the name '{}'", name));
    throw_if_wait_ends(*memory, "waiting for a name");
    futex_wait(changes, seen, deadline.left(kLookUp));
  }
}

}  // namespace retinue::detail
