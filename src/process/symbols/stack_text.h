#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace retinue {

/// One line of a stack: all strings may be empty.
struct StackLine {
  std::string function;
  std::string file;
  int line = 0;
  std::string object;         ///< File name of the program or library.
  std::uint64_t offset = 0;   ///< In `object`, or the address itself where there is none.
  std::uint64_t skipped = 0;  ///< Not 0: this line stands for so many frames that were not kept.
};

/// Whose the innermost frames of a stack are, which are of interest where what happened there is the news.
enum class Innermost { kNews, kLibrary };
/// Those of an exception that Retinue itself throws, whose message says all, are the library's.
Innermost innermost_of(std::string_view exception_type);

/// Which of `lines`, one for each frame and with functions only, trim_stack() may leave something of: of the last one
/// what was inlined into it.
struct LineRange {
  std::size_t first = 0;
  std::size_t end = 0;
};
LineRange users_range(const std::vector<StackLine>& lines, Innermost innermost = Innermost::kNews);

/// Takes away what is not the user's: how the C++ runtime throws and terminates from the front, with
/// Innermost::kLibrary also the library's frames but for the call that the user made, and from the back all from
/// Retinue's first own frame outwards, or what the C library does before main and before a thread's function.
std::vector<StackLine> trim_stack(std::vector<StackLine> lines, Innermost innermost = Innermost::kNews);
/// The latter alone: for a stack that did not fail.
std::vector<StackLine> trim_outside(std::vector<StackLine> lines);

/// One numbered line each; a function that only repeats itself is told once with its count.
std::string stack_text(const std::vector<StackLine>& lines);

}  // namespace retinue
