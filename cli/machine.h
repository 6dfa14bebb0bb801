#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace retinue {

/// What a machine says of itself, as far as it can limit a job; a value, so that checks can be tried on any machine.
struct Machine {
  int online_cpus = 1;
  int affinity_cpus = 1;
  std::optional<double> cgroup_cpus;

  std::uint64_t ram_bytes = 0;
  std::uint64_t available_bytes = 0;
  std::optional<std::uint64_t> cgroup_memory_bytes;
  int overcommit = 0;  ///< vm.overcommit_memory

  static constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};
  std::uint64_t open_files = kUnlimited;  ///< Soft limit.
  std::uint64_t open_files_hard = kUnlimited;
  std::uint64_t processes = kUnlimited;           ///< RLIMIT_NPROC; does not bind root.
  std::optional<std::uint64_t> cgroup_processes;  ///< pids.max

  std::string shmem_huge_pages;  ///< The chosen word of transparent_hugepage/shmem_enabled; empty: the kernel has none.
  std::string huge_pages;        ///< That of transparent_hugepage/enabled.
  std::optional<int> ptrace_scope;
  std::string core_pattern;
  std::uint64_t core_bytes = 0;  ///< RLIMIT_CORE, soft.
  std::uint64_t shm_bytes = 0;   ///< Size of /dev/shm.
  int seccomp = 0;               ///< 0 none, 2 a filter.
  bool is_root = false;
  std::string kernel;                ///< As uname tells it.
  std::map<std::string, int> calls;  ///< System calls that Retinue needs: 0, or the errno of a harmless try.

  bool has_torch = false;                        ///< This build has the torch layer.
  std::map<std::string, std::string> libraries;  ///< Engines: what was found, by "Open MPI or MPICH", "gloo", "NCCL".
  std::vector<std::string> gpus;

  static Machine read();
};

}  // namespace retinue
