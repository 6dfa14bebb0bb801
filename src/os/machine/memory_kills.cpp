#include "os/machine/memory_kills.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <utility>

#include "os/files/file_descriptor.h"
#include "os/files/kernel_files.h"

namespace retinue {
namespace {

using Version = Cgroup::Version;

template <class Number>
Number number_at(std::string_view text) {
  Number number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// The value of `key=` up to the next comma.
std::string_view value_of(std::string_view text, std::string_view key) {
  const auto found = text.find(key);
  if (found == std::string_view::npos) return {};
  text.remove_prefix(found + key.size());
  return text.substr(0, text.find(','));
}

std::string kill_counters(const Cgroup& cgroup) {
  return read_kernel_file(cgroup.folder + (cgroup.version == Version::k1 ? "/memory.oom_control" : "/memory.events"));
}

std::uint64_t limit_hits_of(const Cgroup& cgroup) {
  if (cgroup.version == Version::k1) return read_number(cgroup.folder + "/memory.failcnt").value_or(0);
  // Counted where the limit is, but memory.events counts those of the cgroups below too.
  std::string events = read_kernel_file(cgroup.folder + "/memory.events.local");
  if (events.empty()) events = read_kernel_file(cgroup.folder + "/memory.events");
  return counter_in(events, "oom").value_or(0);
}

std::optional<std::uint64_t> kills_on_machine() {
  return counter_in(read_kernel_file("/proc/vmstat"), "oom_kill");
}

/// What the kernel's log says of the kill of `pid`; nullopt when it cannot be read, which takes privileges.
std::optional<std::string> find_in_kernel_log(pid_t pid, std::uint64_t since_ns) {
  const FileDescriptor log(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!log) return std::nullopt;
  std::optional<std::string> found;
  char record[8192];
  for (;;) {
    const ssize_t bytes = read(log.get(), record, sizeof record);
    // EPIPE: records were overwritten while we read; the next read goes on behind them.
    if (bytes < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (bytes <= 0) return found;
    auto here = full_cgroup_in({record, static_cast<std::size_t>(bytes)}, pid, since_ns);
    if (here) found = std::move(here);
  }
}

}  // namespace

std::optional<std::string> full_cgroup_in(std::string_view kernel_record, pid_t pid, std::uint64_t since_ns) {
  // "priority,sequence,microseconds,flags;oom-kill:constraint=CONSTRAINT_MEMCG,...,oom_memcg=/a,...,task=b,pid=7,uid=0"
  const auto begin = kernel_record.find(';');
  if (begin == std::string_view::npos) return std::nullopt;
  std::string_view head = kernel_record.substr(0, begin);
  const std::string_view text = kernel_record.substr(begin + 1);
  if (!text.starts_with("oom-kill:")) return std::nullopt;
  for (int comma = 0; comma < 2; ++comma) head.remove_prefix(std::min(head.find(',') + 1, head.size()));
  // The log's clock and ours differ by less than this.
  constexpr std::uint64_t kToleranceNs = 1'000'000'000;
  if (number_at<std::uint64_t>(head) * 1000 + kToleranceNs < since_ns) return std::nullopt;
  const auto pid_at = text.rfind(",pid=");  // The last: a process's name may hold anything.
  if (pid_at == std::string_view::npos || number_at<pid_t>(text.substr(pid_at + 5)) != pid) return std::nullopt;
  const bool is_cgroup = value_of(text, "constraint=") == "CONSTRAINT_MEMCG";
  return std::string(is_cgroup ? value_of(text, "oom_memcg=") : "");
}

void MemoryKills::find_cgroups() {
  for (Cgroup& cgroup : own_cgroups("memory")) {
    if (access(cgroup.folder.c_str(), F_OK) != 0) continue;
    // The root of all has no limit, and with version 2 no counters.
    if (limit_hits_of(cgroup) == 0 && kill_counters(cgroup).empty()) continue;
    cgroups_.push_back({std::move(cgroup)});
  }
}

void MemoryKills::rebase() {
  constexpr std::chrono::milliseconds kJustNow(50);
  const auto now = std::chrono::steady_clock::now();
  if (has_cgroups_ && now - based_at_ < kJustNow) return;
  based_at_ = now;
  if (!std::exchange(has_cgroups_, true)) find_cgroups();
  machine_kills_ = kills_on_machine();
  cgroup_kills_ = kills_in_cgroup();
  for (Watched& each : cgroups_) each.limit_hits = limit_hits_of(each.cgroup);
}

std::uint64_t MemoryKills::kills_in_cgroup() const {
  // The victim's own cgroup counts it, whoever's limit was met.
  return cgroups_.empty() ? 0 : counter_in(kill_counters(cgroups_.front().cgroup), "oom_kill").value_or(0);
}

MemoryKill MemoryKills::full_cgroup() const {
  for (const Watched& each : cgroups_) {
    const auto limit = limit_bytes_of(each.cgroup);
    if (limit && limit_hits_of(each.cgroup) > each.limit_hits) return {*limit};
  }
  return {};
}

std::optional<MemoryKill> MemoryKills::explain(pid_t pid, std::uint64_t since_ns) {
  if (machine_kills_ && kills_on_machine() == machine_kills_) return std::nullopt;
  const bool is_counted = kills_in_cgroup() > cgroup_kills_;
  const std::optional<std::string> logged = find_in_kernel_log(pid, since_ns);
  if (!is_counted && !logged) return std::nullopt;
  if (is_counted) ++cgroup_kills_;
  if (!logged) return full_cgroup();
  if (logged->empty()) return MemoryKill{};
  for (const auto& [root, version] :
       {std::pair("/sys/fs/cgroup/memory", Version::k1), std::pair("/sys/fs/cgroup", Version::k2),
        std::pair("/sys/fs/cgroup/unified", Version::k2)}) {
    if (const auto limit = limit_bytes_of({root + *logged, version})) return MemoryKill{*limit};
  }
  return full_cgroup();  // The log's path is the machine's, ours may be a container's.
}

}  // namespace retinue
