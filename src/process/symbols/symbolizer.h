#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ipc/memory/crash_record.h"
#include "process/symbols/object_symbols.h"
#include "process/symbols/stack_text.h"

namespace retinue {

/// Turns the addresses of crash records into names, lines and files, and remembers what it found: ranks that fail at
/// the same place cost no more than one.
///
/// Runs in another process than the one that crashed, and reads the objects' files there.
/// Cost: for a record a walk through the symbol table of each of its objects, 3 ms for LibTorch's, and some 0.2 ms for
/// each new source file with debug information. What is not the user's costs its name only.
class Symbolizer {
 public:
  /// The record's stack as text, one frame per line: `#3 train(retinue::RankContext&, int) at train.cpp:88
  /// (program+0x1234)`.
  ///
  /// Begins at the function that failed and ends at the entry: what lies further out is Retinue's own. Without debug
  /// information a frame is symbol and offset, without the file object and offset. Never throws: what cannot be said is
  /// left out.
  std::string symbolize(const CrashRecord& record) noexcept;

  /// Tells of addresses that will be asked for: looking for their functions all at once costs no more than one.
  void expect(const std::string& path, const std::vector<std::uint64_t>& offsets);

  /// Appends what stands at `offset` of the object in `path`: a line, or several where functions were inlined.
  void append_lines(const std::string& path, std::uint64_t offset, std::vector<StackLine>& lines);

 private:
  struct Object {
    ObjectSymbols symbols;
    std::map<std::uint64_t, std::vector<SourceFrame>> known;  ///< By offset.
  };

  Object& object_at(const std::string& path);
  const std::vector<SourceFrame>& names_at(const std::string& path, std::uint64_t offset);
  void expect_all(const CrashRecord& record);
  std::vector<StackLine> lines_of(const CrashRecord& record, LineRange named);

  std::map<std::string, Object> objects_;
};

/// The same with objects and offsets only: opens nothing, and is what there is without a helper.
std::string stack_without_names(const CrashRecord& record) noexcept;

}  // namespace retinue
