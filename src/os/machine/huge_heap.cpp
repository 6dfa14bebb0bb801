#include "os/machine/huge_heap.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "os/machine/memory.h"

namespace retinue {
namespace {

constexpr std::size_t kMostPieces = 128;
constexpr std::size_t kSmallestHeap = 2 * kHugePageBytes;
constexpr std::uint64_t kLargestRange = std::uint64_t{1} << 32;  // What is larger is address space, as a sanitizer's.

/// A huge page takes memory for all of itself, so it must be worth it.
bool is_mostly_touched(std::byte* piece) {
  std::array<unsigned char, kHugePageBytes / 4096> resident{};
  const std::size_t pages = kHugePageBytes / page_bytes();
  if (pages > resident.size() || mincore(piece, kHugePageBytes, resident.data()) != 0) return false;
  const auto touched = std::count_if(resident.begin(), resident.begin() + static_cast<std::ptrdiff_t>(pages),
                                     [](unsigned char flags) { return (flags & 1) != 0; });
  return static_cast<std::size_t>(touched) > pages / 2;
}

}  // namespace

bool HugeHeap::is_worth_a_look() {
  const struct mallinfo2 heap = mallinfo2();
  return heap.arena + heap.hblkhd >= kSmallestHeap;
}

HugeHeap::HugeHeap() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long first = 0;
    unsigned long end = 0;
    unsigned long inode = 0;
    char rights[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %*s %*s %lu", &first, &end, rights, &inode) != 4) continue;
    const bool private_memory = std::string(rights) == "rw-p" && inode == 0;
    if (!private_memory || end - first > kLargestRange) continue;
    const std::uint64_t start = (first + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    for (std::uint64_t at = start; at + kHugePageBytes <= end && pieces_.size() < kMostPieces; at += kHugePageBytes) {
      auto* const piece = reinterpret_cast<std::byte*>(at);
      if (is_mostly_touched(piece)) pieces_.push_back(piece);
    }
  }
}

bool HugeHeap::advance() {
  if (pieces_.empty()) return false;
  collapse_to_huge_page(pieces_.back());
  pieces_.pop_back();
  return !pieces_.empty();
}

}  // namespace retinue
