#include "process/symbols/symbolizer.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/char_field.h"
#include "process/crash/stack_capture.h"

namespace retinue {
namespace {

void append_found(const std::string& path, std::uint64_t offset, const std::vector<SourceFrame>& found,
                  std::vector<StackLine>& lines) {
  StackLine line;
  line.offset = offset;
  line.object = path.substr(path.rfind('/') + 1);
  if (found.empty()) lines.push_back(line);
  for (const SourceFrame& source : found) {
    // gcc splits a function and inlines the part into the rest: one function to the reader, its innermost line is
    // right.
    if (&source != &found.front() && source.function == line.function) continue;
    line.function = source.function;
    line.file = source.file;
    line.line = source.line;
    lines.push_back(line);
  }
}

std::size_t frame_count_of(const CrashRecord& record) {
  // The record comes from a process that was falling apart.
  return std::min<std::size_t>(record.frame_count, CrashRecord::kMaxFrames);
}

bool has_object(const CrashRecord& record, const CrashRecord::Frame& frame) {
  return frame.object < std::min<std::size_t>(record.object_count, CrashRecord::kMaxObjects);
}

/// `names_at(path, offset)` gives what stands there.
template <class NamesAt>
void append_frame(const CrashRecord& record, const CrashRecord::Frame& frame, NamesAt names_at,
                  std::vector<StackLine>& lines) {
  if (frame.object == kSkippedFrames) {
    lines.push_back({.function = {}, .file = {}, .line = 0, .object = {}, .offset = 0, .skipped = frame.offset});
    return;
  }
  if (!has_object(record, frame)) {
    append_found({}, frame.offset, {}, lines);
    return;
  }
  const std::string path = text_of(record.objects[frame.object].path);
  append_found(path, frame.offset, names_at(path, frame.offset), lines);
}

std::vector<SourceFrame> function_alone(const std::string& function) {
  if (function.empty()) return {};
  return {{.function = function, .file = {}, .line = 0, .is_inlined = false}};
}

/// Of a signal in the library the place is news.
Innermost innermost_of_record(const CrashRecord& record) {
  return record.kind == CrashKind::kSignal ? Innermost::kNews : innermost_of(text_of(record.type));
}

}  // namespace

Symbolizer::Object& Symbolizer::object_at(const std::string& path) {
  const auto object = objects_.find(path);
  return object != objects_.end() ? object->second
                                  : objects_.try_emplace(path, Object{ObjectSymbols(path), {}}).first->second;
}

const std::vector<SourceFrame>& Symbolizer::names_at(const std::string& path, std::uint64_t offset) {
  Object& object = object_at(path);
  auto known = object.known.find(offset);
  if (known == object.known.end()) known = object.known.emplace(offset, object.symbols.at(offset)).first;
  return known->second;
}

void Symbolizer::expect(const std::string& path, const std::vector<std::uint64_t>& offsets) {
  if (path.starts_with('/')) object_at(path).symbols.look_up(offsets);
}

void Symbolizer::expect_all(const CrashRecord& record) {
  std::map<std::uint32_t, std::vector<std::uint64_t>> offsets;
  for (std::size_t i = 0; i < frame_count_of(record); ++i)
    if (has_object(record, record.frames[i])) offsets[record.frames[i].object].push_back(record.frames[i].offset);
  for (const auto& [object, list] : offsets) object_at(text_of(record.objects[object].path)).symbols.look_up(list);
}

/// Of the frames outside of `named` only the functions.
std::vector<StackLine> Symbolizer::lines_of(const CrashRecord& record, LineRange named) {
  std::vector<StackLine> lines;
  for (std::size_t i = 0; i < frame_count_of(record); ++i) {
    const bool is_named = i >= named.first && i < named.end;
    const auto names = [&](const std::string& path, std::uint64_t offset) {
      return is_named ? names_at(path, offset) : function_alone(object_at(path).symbols.function_at(offset));
    };
    append_frame(record, record.frames[i], names, lines);
  }
  return lines;
}

std::string Symbolizer::symbolize(const CrashRecord& record) noexcept {
  try {
    expect_all(record);
    // Debug information costs most by far, that of the C library above all: it is read for what will be shown.
    const Innermost innermost = innermost_of_record(record);
    const LineRange named = users_range(lines_of(record, {0, 0}), innermost);
    std::vector<StackLine> lines = lines_of(record, named);
    const std::size_t count = lines.size();
    lines = trim_stack(std::move(lines), innermost);
    if (lines.size() == count) lines = trim_stack(lines_of(record, {0, frame_count_of(record)}), innermost);
    return stack_text(lines);
  } catch (...) {
    return {};
  }
}

void Symbolizer::append_lines(const std::string& path, std::uint64_t offset, std::vector<StackLine>& lines) {
  append_found(path, offset, path.starts_with('/') ? names_at(path, offset) : std::vector<SourceFrame>{}, lines);
}

std::string stack_without_names(const CrashRecord& record) noexcept {
  try {
    const auto nothing = [](const std::string&, std::uint64_t) { return std::vector<SourceFrame>{}; };
    std::vector<StackLine> lines;
    for (std::size_t i = 0; i < frame_count_of(record); ++i) append_frame(record, record.frames[i], nothing, lines);
    return stack_text(trim_stack(std::move(lines)));
  } catch (...) {
    return {};
  }
}

}  // namespace retinue
