#include "retinue/launch/join_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/char_field.h"
#include "ipc/memory/process_table.h"
#include "launch/runtime/guest_state.h"
#include "launch/runtime/job_memory_variable.h"
#include "launch/world/group_records.h"
#include "os/files/file_descriptor.h"
#include "os/files/kernel_files.h"
#include "retinue/base/error.h"
#include "retinue/launch/runtime.h"

namespace retinue {
namespace {

constexpr const char* kBootId = "/proc/sys/kernel/random/boot_id";
constexpr std::string_view kOpeningAdvice =
    "; all ranks must run as the same user and in the same PID namespace (container), and none may turn off "
    "PR_SET_DUMPABLE";

using Memories = std::vector<std::shared_ptr<JobMemory>>;

/// Memory that was made for groups of this process. Kept to its end: the main thread's life locks stay in the kernel's
/// robust list.
struct MetMemories {
  std::mutex mutex;
  Memories all;
};
MetMemories& met_memories() {
  static auto* const met = new MetMemories;
  return *met;
}

std::shared_ptr<JobMemory> memory_of_own_job() {
  if (const Runtime* runtime = Runtime::current_or_null()) return runtime->memory();
  return is_guest() ? JobMemory::current() : nullptr;
}

/// Where this process has a slot: in its job's memory, and in what was made for groups, the newest first.
Memories own_memories() {
  Memories own;
  const auto add = [&own](const std::shared_ptr<JobMemory>& memory) {
    // A fork has its parent's list, but not its slots.
    if (memory && memory->own_slot() != JobMemory::kNoSlot && memory->is_of_this_process()) own.push_back(memory);
  };
  add(memory_of_own_job());
  MetMemories& met = met_memories();
  const std::lock_guard lock(met.mutex);
  std::for_each(met.all.rbegin(), met.all.rend(), add);
  return own;
}

void remember(const std::shared_ptr<JobMemory>& memory) {
  MetMemories& met = met_memories();
  const std::lock_guard lock(met.mutex);
  met.all.push_back(memory);
}

template <class Step>
StepResult result_of(Step step) {
  StepResult result;
  try {
    step();
  } catch (const NotOneHost& error) {
    result.kind = StepResult::kNotOneHost;
    fill(result.text, error.reason());
  } catch (const UsageError& error) {
    result.kind = StepResult::kUsageError;
    fill(result.text, error.what());
  } catch (const std::exception& error) {
    result.kind = StepResult::kOtherError;
    fill(result.text, error.what());
  }
  return result;
}

void check_main_thread() {
  if (syscall(SYS_gettid) != getpid())
    throw UsageError(
        "only the main thread can join a group that needs new job memory, because the process ends with it; call this "
        "in the main thread");
}

/// Maps what rank 0 made. Seen through /proc it needs no socket, and rank 0 need not serve anybody.
std::shared_ptr<JobMemory> mapped(const MemoryOffer& offer) {
  const std::string path = fmt::format("/proc/{}/fd/{}", offer.pid, offer.memfd);
  const auto refuse = [&](std::string_view why) {
    const std::string reason = fmt::format("the memory that rank 0 (pid {}) made can't be opened: {}", offer.pid, why);
    return NotOneHost(reason, reason);
  };
  // Looked at before it is opened: elsewhere that number may be any file's, and to open some does things.
  const std::string target = target_of_link(path);
  if (target.empty()) throw refuse(std::strerror(errno));
  if (!target.starts_with("/memfd:retinue-job")) throw refuse("another process has that pid here");
  const FileDescriptor memfd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!memfd) throw refuse(std::strerror(errno));
  std::shared_ptr<JobMemory> memory = JobMemory::attach(memfd.get());
  if (memory->header().job_id != offer.job_id) throw refuse("another process has that pid here");
  return memory;
}

/// One call of join_group().
class Joining {
 public:
  explicit Joining(const GroupExchange& exchange)
      : exchange_(exchange), size_(static_cast<std::size_t>(exchange.size)) {
    if (exchange.size < 1 || exchange.rank < 0 || exchange.rank >= exchange.size)
      throw UsageError(
          fmt::format("join_group: rank {} of {} is not valid: ranks are 0 to size - 1", exchange.rank, exchange.size));
    if (!exchange.all_gather) throw UsageError("join_group: the exchange has no all_gather");
  }

  JobGroup run() {
    const std::size_t memories = greet();
    introduce();
    if (memories == 0 || !find_common_memory(memories)) make_memory();
    // Unique in that memory: the groups that the process in this slot was first in are counted.
    group_.name += fmt::format(" {}.{}", group_.process_slots.front(), number_);
    return group_;
  }

 private:
  bool is_first() const { return exchange_.rank == 0; }

  template <class T>
  std::vector<T> gather(const T* own, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(count * size_);
    exchange_.all_gather(own, all.data(), count * sizeof(T));
    return all;
  }
  template <class T>
  std::vector<T> gather(const T& own) {
    return gather(&own, 1);
  }

  [[noreturn]] void refuse(const std::string& text) const {
    throw UsageError(fmt::format("group \"{}\": {}", group_.name, text));
  }

  [[noreturn]] void refuse_hosts(const std::string& reason, std::string_view advice) const {
    throw NotOneHost(fmt::format("group \"{}\": {}{}", group_.name, reason, advice), reason);
  }

  void check(std::size_t rank, const StepResult& result) const {
    if (result.kind == StepResult::kDone) return;
    const std::string text = fmt::format("rank {}: {}", rank, text_of(result.text));
    if (result.kind == StepResult::kNotOneHost) refuse_hosts(text, kOpeningAdvice);
    if (result.kind == StepResult::kUsageError) refuse(text);
    throw Error(fmt::format("group \"{}\": {}", group_.name, text));
  }

  /// A step that goes well on all ranks, or is an error on all.
  template <class Step>
  void agree(Step step) {
    const std::vector<StepResult> results = gather(result_of(step));
    for (std::size_t rank = 0; rank < size_; ++rank) check(rank, results[rank]);
  }

  std::size_t greet();
  void introduce();
  bool find_common_memory(std::size_t memories);
  void make_memory();
  void take_slots();

  const GroupExchange& exchange_;
  std::size_t size_;
  Memories own_ = own_memories();
  JobGroup group_;
  std::uint64_t number_ = 0;
};

/// The largest number of memories that one of the ranks knows.
std::size_t Joining::greet() {
  group_.name = exchange_.name;
  const std::vector<Greeting> all = gather(Greeting{.memories = own_.size()});
  std::uint64_t memories = 0;
  for (std::size_t rank = 0; rank < size_; ++rank) {
    if (all[rank].protocol != all[0].protocol || all[rank].layout_version != all[0].layout_version)
      refuse(fmt::format("ranks 0 and {} were built with different versions of Retinue", rank));
    memories = std::max(memories, all[rank].memories);
  }
  return memories;
}

/// Who is in the group: its name, and that all are on one host.
void Joining::introduce() {
  static std::atomic<std::uint64_t> number{0};
  Introduction own{.number = ++number};
  fill(own.boot_id, first_line_of(kBootId).value_or(""));
  fill(own.name, exchange_.name);
  const std::vector<Introduction> all = gather(own);
  group_.rank = exchange_.rank;
  group_.name = text_of(all[0].name);
  for (std::size_t rank = 1; rank < size_; ++rank)
    if (text_of(all[rank].boot_id) != text_of(all[0].boot_id))
      refuse_hosts(fmt::format("ranks 0 and {} are on different hosts", rank),
                   fmt::format(", but a group like this needs all ranks on one host: {}", exchange_.hosts_advice));
  number_ = all[0].number;
}

/// Takes the first of rank 0's that all have, with the slots that they have there.
bool Joining::find_common_memory(std::size_t memories) {
  std::vector<KnownMemory> own(memories);
  for (std::size_t i = 0; i < own_.size(); ++i) own[i] = {own_[i]->header().job_id, own_[i]->own_slot()};
  const std::vector<KnownMemory> all = gather(own.data(), memories);
  const auto known_by = [&](std::size_t rank) { return std::span(all).subspan(rank * memories, memories); };
  for (const KnownMemory& candidate : known_by(0)) {
    if (candidate.job_id == 0) break;
    group_.process_slots.clear();
    for (std::size_t rank = 0; rank < size_; ++rank)
      for (const KnownMemory& known : known_by(rank))
        if (known.job_id == candidate.job_id) group_.process_slots.push_back(known.slot);
    if (group_.process_slots.size() != size_) continue;
    group_.memory = *std::find_if(own_.begin(), own_.end(),
                                  [&](const auto& memory) { return memory->header().job_id == candidate.job_id; });
    return true;
  }
  group_.process_slots.clear();
  return false;
}

void Joining::make_memory() {
  MemoryOffer own;
  if (is_first())
    own.result = result_of([&] {
      check_main_thread();
      group_.memory = JobMemory::create(job_memory_of_environment());
      own.job_id = group_.memory->header().job_id;
      own.pid = getpid();
      own.memfd = group_.memory->memfd();
    });
  const MemoryOffer offer = gather(own).front();
  check(0, offer.result);
  agree([&] {
    check_main_thread();
    if (!is_first()) group_.memory = mapped(offer);
  });
  take_slots();
}

/// Only now: who has taken a slot keeps the memory to its end.
void Joining::take_slots() {
  SlotOffer own;
  if (is_first())
    own.result = result_of([&] {
      enter_process_slot(*group_.memory, kProgramSlot);
      remember(group_.memory);
      // Of memory that nobody else uses yet: they are side by side.
      if (size_ > 1) own.first_slot = reserve_process_slots(*group_.memory, exchange_.size - 1).front();
    });
  const SlotOffer offer = gather(own).front();
  check(0, offer.result);
  group_.process_slots.push_back(kProgramSlot);
  for (std::uint32_t i = 0; i + 1 < size_; ++i) group_.process_slots.push_back(offer.first_slot + i);
  agree([&] {
    if (is_first()) return;
    enter_guest_slot(*group_.memory, group_.process_slots[static_cast<std::size_t>(exchange_.rank)]);
    remember(group_.memory);
  });
}

}  // namespace

JobGroup join_group(const GroupExchange& exchange) {
  return Joining(exchange).run();
}

std::string host_of_this_process() {
  return fmt::format("{} {}", first_line_of(kBootId).value_or(""), target_of_link("/proc/self/ns/pid"));
}

}  // namespace retinue
