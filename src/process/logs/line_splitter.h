#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace retinue {

/// Turns one stream's bytes, in whatever portions they come, into whole lines with a prefix. Bytes pass untouched. A
/// carriage return ends a line as a line end does: a progress bar is shown while it moves.
class LineSplitter {
 public:
  /// A longer line is shown in parts of this size, so that a stream without line ends needs no endless memory.
  static constexpr std::size_t kLongestLine = std::size_t{16} << 20;
  static constexpr std::string_view kGoesOn = " [line goes on]";
  static constexpr std::string_view kNoNewline = " [no newline]";

  /// With `filters`, only lines that contain one of them are kept.
  LineSplitter(std::string prefix, std::vector<std::string> filters);

  /// Appends the lines that end in `text` to `output`, until that has grown by `limit` bytes; a single line may be
  /// longer. Returns how many bytes of `text` it took: give the rest again.
  std::size_t take(std::string_view text, std::string& output, std::size_t limit);

  /// The stream has ended: appends the line that has no end, marked.
  void finish(std::string& output);

  /// The stream starts again from its beginning.
  void restart();

  /// Bytes of the stream up to the end of the last whole line that was taken.
  std::uint64_t whole_line_bytes() const { return whole_line_bytes_; }

 private:
  /// The line end after a carriage return is that line's.
  void show_line_end(std::string& output);
  bool is_wanted(std::string_view line) const;
  std::size_t shown_bytes(std::string_view rest_of_line) const {
    return prefix_.size() + begun_.size() + rest_of_line.size();
  }
  void show(std::string_view rest_of_line, std::string_view mark, std::string& output);

  std::string prefix_;
  std::vector<std::string> filters_;
  std::string begun_;  ///< Of a line whose end has not come yet.
  std::uint64_t whole_line_bytes_ = 0;
  bool is_after_return_ = false;  ///< A carriage return came last.
  bool is_last_wanted_ = false;   ///< The line before was shown.
};

}  // namespace retinue
