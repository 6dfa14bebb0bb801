#include "os/machine/huge_heap.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>

#include "os/machine/memory.h"
#include "support/memory_map.h"

namespace {

constexpr std::size_t kBytes = std::size_t{32} << 20;

class AnonymousMemory {
 public:
  AnonymousMemory()
      : start_(static_cast<unsigned char*>(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    madvise(start_, kBytes, MADV_NOHUGEPAGE);  // Small pages first, whatever the machine's setting.
  }
  ~AnonymousMemory() { munmap(start_, kBytes); }
  AnonymousMemory(const AnonymousMemory&) = delete;
  AnonymousMemory& operator=(const AnonymousMemory&) = delete;

  void fill() {
    std::fill_n(start_, kBytes, 7);
    madvise(start_, kBytes, MADV_HUGEPAGE);
  }
  bool is_full() const {
    return std::all_of(start_, start_ + kBytes, [](unsigned char each) { return each == 7; });
  }

 private:
  unsigned char* start_;
};

TEST(HugeHeap, TurnsTouchedMemoryAndKeepsItsContents) {
  AnonymousMemory memory;
  memory.fill();
  const std::size_t before = retinue::test::smaps_bytes("AnonHugePages");
  retinue::HugeHeap heap;
  while (heap.advance()) continue;
  EXPECT_TRUE(memory.is_full());
  const std::size_t gained = retinue::test::smaps_bytes("AnonHugePages") - before;
  if (gained == 0) GTEST_SKIP() << "this kernel makes no huge pages on request";
  EXPECT_GE(gained, kBytes / 2);
}

TEST(HugeHeap, LeavesUntouchedMemoryAlone) {
  const AnonymousMemory memory;
  const std::size_t before = retinue::test::smaps_bytes("Rss");
  retinue::HugeHeap heap;
  while (heap.advance()) continue;
  EXPECT_LT(retinue::test::smaps_bytes("Rss"), before + kBytes / 2);
}

}  // namespace
