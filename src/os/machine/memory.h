#pragma once

#include <cstddef>
#include <cstdint>

#include "os/files/file_descriptor.h"

namespace retinue {

/// An anonymous file of `bytes` bytes that cannot be resized any more, sparse, close-on-exec.
FileDescriptor create_sealed_memfd(const char* name, std::size_t bytes);

/// The unit in which memory is committed: a huge page of x86-64, and of aarch64 with pages of 4 KiB.
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

/// The smallest multiple of `unit` that is not below `value`.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Maps all of `memfd` shared, at a multiple of kHugePageBytes; kept out of core dumps.
std::byte* map_shared(int memfd, std::size_t bytes);
void unmap(std::byte* base, std::size_t bytes);

/// Puts one huge page behind `piece`, kHugePageBytes that are aligned so and touched somewhere. Without effect where
/// the kernel cannot.
void collapse_to_huge_page(std::byte* piece);

/// Commits pages, so that lack of memory is an errno and not a SIGBUS later; an aligned piece of kHugePageBytes as one
/// huge page where the kernel has one, whatever its shmem_enabled says. Returns 0 or the errno.
/// Through the mapping, not the descriptor: a program that closes all descriptors may have reused its number.
int commit_pages(std::byte* first, std::size_t bytes);

/// Has the whole pages in there come from a memory node, and go there, as far as the kernel lets them. Without effect
/// where it doesn't.
void prefer_node(std::byte* first, std::size_t bytes, int node) noexcept;

/// Maps a page of `memfd` without any right, for ever: forks of this process can be told by it.
void map_mark(int memfd);

std::size_t file_bytes(int fd);
std::uint64_t file_inode(int fd);
std::size_t page_bytes();

/// What `ulimit -f` allows; a memfd that is made larger would end the process by SIGXFSZ.
std::size_t file_size_limit_bytes();
/// Address space that this process may still use (ulimit -v).
std::size_t address_space_left_bytes();

/// RAM of the machine, or the smallest limit of this process's memory cgroups if that is smaller.
std::size_t memory_limit_bytes();

/// What can still be committed before the machine or the memory cgroup is full.
std::size_t memory_headroom_bytes();

}  // namespace retinue
