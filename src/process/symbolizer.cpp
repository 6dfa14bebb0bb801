#include "process/symbolizer.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "process/stack_capture.h"

namespace retinue {
namespace {

std::string path_of(const CrashRecord::Object& object) {
  return {object.path, strnlen(object.path, sizeof object.path)};
}

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

/// `names_at(path, offset)` gives what stands there.
template <class NamesAt>
void append_frame(const CrashRecord& record, const CrashRecord::Frame& frame, NamesAt names_at,
                  std::vector<StackLine>& lines) {
  if (frame.object == kSkippedFrames) {
    lines.push_back({.function = {}, .file = {}, .line = 0, .object = {}, .offset = 0, .skipped = frame.offset});
    return;
  }
  if (frame.object >= std::min<std::size_t>(record.object_count, CrashRecord::kMaxObjects)) {
    append_found({}, frame.offset, {}, lines);
    return;
  }
  const std::string path = path_of(record.objects[frame.object]);
  append_found(path, frame.offset, names_at(path, frame.offset), lines);
}

template <class NamesAt>
std::string text_of(const CrashRecord& record, NamesAt names_at) noexcept {
  try {
    std::vector<StackLine> lines;
    // The record comes from a process that was falling apart.
    const std::size_t count = std::min<std::size_t>(record.frame_count, CrashRecord::kMaxFrames);
    for (std::size_t i = 0; i < count; ++i) append_frame(record, record.frames[i], names_at, lines);
    return stack_text(trim_stack(std::move(lines)));
  } catch (...) {
    return {};
  }
}

}  // namespace

const std::vector<SourceFrame>& Symbolizer::names_at(const std::string& path, std::uint64_t offset) {
  auto object = objects_.find(path);
  if (object == objects_.end()) object = objects_.try_emplace(path, Object{ObjectSymbols(path), {}}).first;
  auto known = object->second.known.find(offset);
  if (known == object->second.known.end())
    known = object->second.known.emplace(offset, object->second.symbols.at(offset)).first;
  return known->second;
}

std::string Symbolizer::symbolize(const CrashRecord& record) noexcept {
  return text_of(record, [this](const std::string& path, std::uint64_t offset) { return names_at(path, offset); });
}

void Symbolizer::append_lines(const std::string& path, std::uint64_t offset, std::vector<StackLine>& lines) {
  append_found(path, offset, path.starts_with('/') ? names_at(path, offset) : std::vector<SourceFrame>{}, lines);
}

std::string stack_without_names(const CrashRecord& record) noexcept {
  return text_of(record, [](const std::string&, std::uint64_t) { return std::vector<SourceFrame>{}; });
}

}  // namespace retinue
