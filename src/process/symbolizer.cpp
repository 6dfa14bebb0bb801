#include "process/symbolizer.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "process/object_symbols.h"
#include "process/stack_capture.h"
#include "process/stack_text.h"

namespace retinue {
namespace {

/// Opens each object of a record once, when a frame first needs it.
class RecordObjects {
 public:
  explicit RecordObjects(const CrashRecord& record) : record_(record), symbols_(CrashRecord::kMaxObjects) {}

  bool has(std::uint32_t index) const {
    return index < std::min<std::size_t>(record_.object_count, CrashRecord::kMaxObjects);
  }

  std::string path(std::uint32_t index) const {
    const char* path = record_.objects[index].path;
    return {path, strnlen(path, sizeof CrashRecord::Object::path)};
  }

  const ObjectSymbols& symbols(std::uint32_t index) {
    if (!symbols_[index]) symbols_[index] = std::make_unique<ObjectSymbols>(path(index));
    return *symbols_[index];
  }

 private:
  const CrashRecord& record_;
  std::vector<std::unique_ptr<ObjectSymbols>> symbols_;
};

void append_frame(const CrashRecord::Frame& frame, RecordObjects& objects, std::vector<StackLine>& lines) {
  if (frame.object == kSkippedFrames) {
    lines.push_back({.function = {}, .file = {}, .line = 0, .object = {}, .offset = 0, .skipped = frame.offset});
    return;
  }
  StackLine line;
  line.offset = frame.offset;
  if (!objects.has(frame.object)) {
    lines.push_back(line);
    return;
  }
  const std::string path = objects.path(frame.object);
  line.object = path.substr(path.rfind('/') + 1);
  const std::vector<SourceFrame> found = objects.symbols(frame.object).at(frame.offset);
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

}  // namespace

std::string symbolize(const CrashRecord& record) noexcept {
  try {
    RecordObjects objects(record);
    std::vector<StackLine> lines;
    // The record comes from a process that was falling apart.
    const std::size_t count = std::min<std::size_t>(record.frame_count, CrashRecord::kMaxFrames);
    for (std::size_t i = 0; i < count; ++i) append_frame(record.frames[i], objects, lines);
    return stack_text(trim_stack(std::move(lines)));
  } catch (...) {
    return {};
  }
}

}  // namespace retinue
