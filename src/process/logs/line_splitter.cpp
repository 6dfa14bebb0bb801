#include "process/logs/line_splitter.h"

#include <algorithm>

namespace retinue {

LineSplitter::LineSplitter(std::string prefix, std::vector<std::string> filters)
    : prefix_(std::move(prefix)), filters_(std::move(filters)) {}

bool LineSplitter::is_wanted(std::string_view line) const {
  return filters_.empty() || std::any_of(filters_.begin(), filters_.end(), [line](const std::string& text) {
           return line.find(text) != std::string_view::npos;
         });
}

/// Ends the line that has begun with `rest_of_line`, which holds its line end unless there is a `mark`.
void LineSplitter::show(std::string_view rest_of_line, std::string_view mark, std::string& output) {
  if (!begun_.empty()) begun_ += rest_of_line;
  const std::string_view line = begun_.empty() ? rest_of_line : begun_;
  is_after_return_ = line.ends_with('\r');
  is_last_wanted_ = is_wanted(line);
  if (is_last_wanted_) {
    if (line != "\r") output += prefix_;  // With which a bar begins that returns before each of its states.
    output += line;
    if (!mark.empty()) {
      output += mark;
      output += '\n';
    }
  }
  whole_line_bytes_ += line.size();
  begun_.clear();
}

void LineSplitter::show_line_end(std::string& output) {
  if (is_last_wanted_) output += '\n';
  ++whole_line_bytes_;
  is_after_return_ = false;
}

std::size_t LineSplitter::take(std::string_view text, std::string& output, std::size_t limit) {
  const std::size_t before = output.size();
  std::size_t taken = 0;
  while (taken < text.size()) {
    const std::string_view rest = text.substr(taken);
    if (is_after_return_ && begun_.empty() && rest[0] == '\n') {
      show_line_end(output);
      ++taken;
      continue;
    }
    const std::size_t end = rest.find_first_of("\r\n");
    const bool is_whole = end != std::string_view::npos;
    std::string_view line = rest.substr(0, is_whole ? end + 1 : rest.size());
    const bool is_too_long = begun_.size() + line.size() > kLongestLine;
    if (is_too_long) line = line.substr(0, kLongestLine - begun_.size());
    if (!is_whole && !is_too_long) {
      begun_ += line;
      return text.size();
    }
    if (output.size() > before && output.size() - before + shown_bytes(line) > limit) return taken;
    show(line, is_too_long ? kGoesOn : std::string_view(), output);
    taken += line.size();
  }
  return taken;
}

void LineSplitter::finish(std::string& output) {
  if (!begun_.empty()) show({}, kNoNewline, output);
}

void LineSplitter::restart() {
  begun_.clear();
  is_after_return_ = false;
  whole_line_bytes_ = 0;
}

}  // namespace retinue
