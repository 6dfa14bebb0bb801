#include "os/process/credentials.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr int kCapabilities = 64;

bool has(std::uint64_t set, int capability) {
  return (set >> capability & 1) != 0;
}

ThreadIds ids_of(const ProcessStatus& status, const char* name) {
  std::vector<std::uint64_t> ids = status.numbers(name);
  ids.resize(4);
  const auto id = [&](std::size_t i) { return static_cast<std::uint32_t>(ids[i]); };
  return {id(0), id(1), id(2), id(3)};
}

[[noreturn]] void refuse(const char* what) {
  throw SystemError(fmt::format("taking over the caller's {}", what), errno);
}

// glibc's calls change all threads of a process, and know only those that it made itself: the kernel's change one.
void take_groups(const Credentials& wanted, const Credentials& now) {
  if (wanted.groups != now.groups &&
      syscall(SYS_setgroups, wanted.groups.size(), wanted.groups.empty() ? nullptr : wanted.groups.data()) != 0)
    refuse("groups");
  const ThreadIds& id = wanted.group;
  if (id == now.group) return;
  if (syscall(SYS_setresgid, id.real, id.effective, id.saved) != 0) refuse("group id");
  syscall(SYS_setfsgid, id.file_system);
}

void take_user(const Credentials& wanted, const Credentials& now) {
  const ThreadIds& id = wanted.user;
  if (id == now.user) return;
  if (syscall(SYS_setresuid, id.real, id.effective, id.saved) != 0) refuse("user id");
  syscall(SYS_setfsuid, id.file_system);
}

struct CapabilitySets {
  std::uint64_t effective;
  std::uint64_t permitted;
  std::uint64_t inheritable;
};

void set_capabilities(const CapabilitySets& sets) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> data{};
  for (std::size_t half = 0; half < 2; ++half) {
    const auto part = [half](std::uint64_t set) { return static_cast<std::uint32_t>(set >> (32 * half)); };
    data[half] = {part(sets.effective), part(sets.permitted), part(sets.inheritable)};
  }
  if (syscall(SYS_capset, &header, data.data()) != 0) refuse("capabilities");
}

void drop_from_bounding_set(const Credentials& wanted, const Credentials& now) {
  for (int capability = 0; capability < kCapabilities; ++capability)
    if (has(now.bounding & ~wanted.bounding, capability) && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0)
      refuse("capability bounding set");
}

void take_ambient(std::uint64_t wanted) {
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  for (int capability = 0; capability < kCapabilities; ++capability)
    if (has(wanted, capability) && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0) != 0)
      refuse("ambient capabilities");
}

/// What of `ids` is none of `others`; none: all are.
const std::uint32_t* foreign_id(const ThreadIds& ids, const ThreadIds& others) {
  for (const std::uint32_t* id : {&ids.real, &ids.effective, &ids.saved, &ids.file_system})
    if (*id != others.real && *id != others.effective && *id != others.saved && *id != others.file_system) return id;
  return nullptr;
}

}  // namespace

Credentials Credentials::of_this_thread(const ProcessStatus& status) {
  Credentials found = of(status);
  found.securebits = static_cast<std::uint32_t>(prctl(PR_GET_SECUREBITS));
  found.dumpable = static_cast<std::uint32_t>(prctl(PR_GET_DUMPABLE));
  return found;
}

Credentials Credentials::of(const ProcessStatus& status) {
  constexpr int kHexadecimal = 16;
  const auto set = [&](const char* name) { return status.number(name, kHexadecimal); };
  Credentials found;
  found.user = ids_of(status, "Uid");
  found.group = ids_of(status, "Gid");
  for (const std::uint64_t group : status.numbers("Groups")) found.groups.push_back(static_cast<std::uint32_t>(group));
  std::ranges::sort(found.groups);
  found.inheritable = set("CapInh");
  found.permitted = set("CapPrm");
  found.effective = set("CapEff");
  found.bounding = set("CapBnd");
  found.ambient = set("CapAmb");
  found.no_new_privs = static_cast<std::uint32_t>(status.number("NoNewPrivs"));
  return found;
}

void Credentials::take(const Credentials& now) const {
  // Else the change of the user would take the capabilities away that the steps after it need.
  if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0 && user != now.user) refuse("capabilities past a change of the user");
  drop_from_bounding_set(*this, now);
  take_groups(*this, now);
  take_user(*this, now);
  const std::uint64_t can_inherit = inheritable & (now.inheritable | now.permitted);
  set_capabilities({now.permitted, now.permitted, can_inherit});
  take_ambient(ambient & can_inherit & now.permitted);
  constexpr std::uint32_t kKeepsCapabilities = SECBIT_KEEP_CAPS;
  if ((securebits & ~kKeepsCapabilities) != (now.securebits & ~kKeepsCapabilities)) {
    if (prctl(PR_SET_SECUREBITS, securebits, 0, 0, 0) != 0) refuse("securebits");
  } else {
    prctl(PR_SET_KEEPCAPS, (securebits & kKeepsCapabilities) != 0 ? 1 : 0, 0, 0, 0);
  }
  set_capabilities({effective & now.permitted, permitted & now.permitted, can_inherit});
  if (no_new_privs != 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) refuse("no_new_privs");
  if (dumpable <= 1) prctl(PR_SET_DUMPABLE, dumpable, 0, 0, 0);  // The kernel sets 2 by itself.
}

Credentials Credentials::before_exec(const Credentials& now) const {
  Credentials limited = *this;
  const bool is_root = (user.real == 0 || user.effective == 0) && (securebits & SECBIT_NOROOT) == 0;
  if (!is_root || ((bounding | inheritable) & ~permitted) == 0) return limited;
  limited.inheritable &= permitted;
  // Who may not change the bounding set gains nothing by execve() without new privileges.
  if (has(now.effective, CAP_SETPCAP))
    limited.bounding &= permitted;
  else
    limited.no_new_privs = 1;
  return limited;
}

std::string Credentials::more_than(const Credentials& other) const {
  if (!has(other.permitted, CAP_SETUID))
    if (const std::uint32_t* id = foreign_id(user, other.user)) return fmt::format("user id {}", *id);
  if (!has(other.permitted, CAP_SETGID)) {
    if (const std::uint32_t* id = foreign_id(group, other.group)) return fmt::format("group id {}", *id);
    for (const std::uint32_t id : groups)
      if (!std::ranges::binary_search(other.groups, id)) return fmt::format("group {}", id);
  }
  const auto more = [](std::uint64_t these, std::uint64_t those) { return (these & ~those) != 0; };
  if (more(permitted | effective | ambient, other.permitted) || more(bounding, other.bounding) ||
      more(inheritable, other.inheritable | other.permitted))
    return fmt::format("capabilities {:x}, bounding set {:x}", permitted | effective | ambient | inheritable, bounding);
  return no_new_privs < other.no_new_privs ? "the right to gain privileges by execve" : "";
}

}  // namespace retinue
