#pragma once

#include <cstddef>
#include <vector>

namespace retinue {

/// Turns this process's heap into huge pages, piece by piece: a fork copies one entry then where it copied 512, and
/// ends as much faster. Of a program linked with LibTorch (50 MB of heap before main) a fork and its end take a fourth.
///
/// Costs the memory of the heap once, where it was shared with the process that this one was forked from. Does nothing
/// where the kernel cannot (before Linux 6.1, or PR_SET_THP_DISABLE).
class HugeHeap {
 public:
  /// Whether the heap is large enough for that.
  static bool is_worth_a_look();

  /// Looks at the mappings as they are now.
  HugeHeap();

  /// Turns the next piece; half a millisecond. False: all is done.
  bool advance();

 private:
  std::vector<std::byte*> pieces_;  ///< kHugePageBytes each, aligned; the last one is the next.
};

}  // namespace retinue
