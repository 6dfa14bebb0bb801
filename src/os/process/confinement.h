#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "os/process/process_calls.h"
#include "os/process/process_stat.h"

namespace retinue {

/// What a process sees of the machine and may ask of its kernel, beyond its Credentials: what only a fork inherits.
struct Confinement {
  static constexpr std::size_t kNamespaces = 8;

  FileIdentity root;
  std::array<std::uint64_t, kNamespaces> namespaces{};  ///< Inodes of what /proc/PID/ns names; 0: not there.
  std::uint32_t seccomp_filters = 0;                    ///< With strict mode as one.

  /// `status` is the calling thread's. Where there is no /proc, as in a chroot, only `root` is known.
  static Confinement of_this_thread(const ProcessStatus& status);

  /// What differs from `earlier`, as "network namespace and root directory"; empty: nothing.
  std::string changes_since(const Confinement& earlier) const;
};

}  // namespace retinue
