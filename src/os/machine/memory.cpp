#include "os/machine/memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <limits>
#include <string>

#include "os/files/kernel_files.h"
#include "os/machine/cgroups.h"
#include "os/machine/valgrind.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr int kMadviseCollapse = 25;  // MADV_COLLAPSE, Linux 6.1; the C library's headers do not name it yet.
constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

std::size_t meminfo_bytes(std::string_view key) {
  const auto kibibytes = counter_in(read_kernel_file("/proc/meminfo"), key);
  return kibibytes ? *kibibytes * 1024 : kUnlimited;
}

struct CgroupMemory {
  std::size_t limit_bytes = kUnlimited;
  std::size_t headroom_bytes = kUnlimited;
};

/// File pages that the kernel drops before it kills: they count as used, but are there for the taking.
std::size_t cached_file_bytes(const std::string& folder) {
  const std::string stat = read_kernel_file(folder + "/memory.stat");
  return counter_in(stat, "inactive_file").value_or(0) + counter_in(stat, "active_file").value_or(0);
}

/// The limits of the process's memory cgroup and of all above it.
CgroupMemory cgroup_memory() {
  CgroupMemory memory;
  for (const Cgroup& cgroup : own_cgroups("memory")) {
    const auto limit = limit_bytes_of(cgroup);
    if (!limit) continue;
    const std::size_t all = used_bytes_of(cgroup).value_or(0);
    const std::size_t usage = all - std::min(all, cached_file_bytes(cgroup.folder));
    memory.limit_bytes = std::min(memory.limit_bytes, *limit);
    memory.headroom_bytes = std::min(memory.headroom_bytes, *limit > usage ? *limit - usage : 0);
  }
  return memory;
}

/// Gives pages memory. Returns 0 or the errno.
int populate(std::byte* first, std::size_t bytes) {
  for (;;) {
    if (madvise(first, bytes, MADV_POPULATE_WRITE) == 0) return 0;
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) return errno;
    // Kernels before 5.14: touching is all there is.
    for (std::size_t at = 0; at < bytes; at += page_bytes())
      std::atomic_ref(*reinterpret_cast<unsigned char*>(first + at)).fetch_or(0, std::memory_order_relaxed);
    return 0;
  }
}

/// Valgrind's leak check reads all that may be read and written, and so gives memory to each page of a sparse file, at
/// 150 MB/s. What may be written can be read by any processor that Retinue knows, but valgrind goes by the word.
int protection() {
  return runs_on_valgrind() ? PROT_WRITE : PROT_READ | PROT_WRITE;
}

[[noreturn]] void throw_mapping_failed(std::size_t bytes) {
  throw SystemError(fmt::format("mapping {} bytes of job memory (lower RuntimeOptions::job_memory or "
                                "RETINUE_JOB_MEMORY, or raise the address space limit, ulimit -v)",
                                bytes),
                    errno);
}

}  // namespace

FileDescriptor create_sealed_memfd(const char* name, std::size_t bytes) {
  FileDescriptor fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw SystemError("memfd_create for job memory", errno);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    throw SystemError(fmt::format("sizing job memory to {} bytes", bytes), errno);
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw SystemError("sealing job memory", errno);
  return fd;
}

std::byte* map_shared(int memfd, std::size_t bytes) {
  // Reserved with room to align: the kernel maps a huge page only where address and file offset agree.
  const std::size_t reserved = bytes + kHugePageBytes;
  void* room = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) throw_mapping_failed(bytes);
  auto* const first = static_cast<std::byte*>(room);
  const std::size_t before =
      (kHugePageBytes - reinterpret_cast<std::uintptr_t>(room) % kHugePageBytes) % kHugePageBytes;
  std::byte* const base = first + before;
  const void* mapped = mmap(base, bytes, protection(), MAP_SHARED | MAP_NORESERVE | MAP_FIXED, memfd, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    munmap(room, reserved);
    errno = error;
    throw_mapping_failed(bytes);
  }
  const std::size_t end = (before + bytes + page_bytes() - 1) / page_bytes() * page_bytes();
  if (before > 0) munmap(first, before);
  if (end < reserved) munmap(first + end, reserved - end);
  madvise(base, bytes, MADV_DONTDUMP);
  return base;
}

void unmap(std::byte* base, std::size_t bytes) {
  munmap(base, bytes);
}

void collapse_to_huge_page(std::byte* piece) {
  madvise(piece, kHugePageBytes, kMadviseCollapse);
}

int commit_pages(std::byte* first, std::size_t bytes) {
  if (bytes == kHugePageBytes && reinterpret_cast<std::uintptr_t>(first) % kHugePageBytes == 0) {
    // The kernel collapses where there is a page already. What it cannot make huge stays small.
    const int error = populate(first, page_bytes());
    if (error != 0) return error;
    collapse_to_huge_page(first);
  }
  return populate(first, bytes);
}

std::size_t file_bytes(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) throw SystemError("fstat of job memory", errno);
  return static_cast<std::size_t>(status.st_size);
}

std::uint64_t file_inode(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) throw SystemError("fstat of job memory", errno);
  return status.st_ino;
}

void prefer_node(std::byte* first, std::size_t bytes, int node) noexcept {
  constexpr int kMostNodes = 1024;
  if (node < 0 || node >= kMostNodes) return;
  const std::size_t page = page_bytes();
  const std::uint64_t begin = round_up(reinterpret_cast<std::uintptr_t>(first), page);
  const std::uint64_t end = (reinterpret_cast<std::uintptr_t>(first) + bytes) / page * page;
  if (begin >= end) return;
  constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);
  unsigned long nodes[kMostNodes / kWordBits] = {};
  nodes[static_cast<std::size_t>(node) / kWordBits] = 1ul << static_cast<std::size_t>(node) % kWordBits;
  syscall(SYS_mbind, begin, end - begin, MPOL_PREFERRED, nodes, kMostNodes, MPOL_MF_MOVE);
}

void map_mark(int memfd) {
  [[maybe_unused]] const void* mark = mmap(nullptr, page_bytes(), PROT_NONE, MAP_SHARED, memfd, 0);
}

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::size_t file_size_limit_bytes() {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  return limit.rlim_cur;
}

std::size_t address_space_left_bytes() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const std::size_t used_pages = read_number("/proc/self/statm").value_or(0);
  return limit.rlim_cur - std::min<std::size_t>(limit.rlim_cur, used_pages * page_bytes());
}

std::size_t memory_limit_bytes() {
  return std::min(meminfo_bytes("MemTotal:"), cgroup_memory().limit_bytes);
}

std::size_t memory_headroom_bytes() {
  return std::min(meminfo_bytes("MemAvailable:"), cgroup_memory().headroom_bytes);
}

}  // namespace retinue
