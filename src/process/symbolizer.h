#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ipc/crash_record.h"
#include "process/object_symbols.h"
#include "process/stack_text.h"

namespace retinue {

/// Turns the addresses of crash records into names, lines and files, and remembers what it found: ranks that fail at
/// the same place cost no more than one.
///
/// Runs in another process than the one that crashed, and reads the objects' files there.
/// Cost: a walk through an object's symbol table for every new address, 17 ms for LibTorch's.
class Symbolizer {
 public:
  /// The record's stack as text, one frame per line: `#3 train(retinue::RankContext&, int) at train.cpp:88
  /// (program+0x1234)`.
  ///
  /// Begins at the function that failed and ends at the entry: what lies further out is Retinue's own. Without debug
  /// information a frame is symbol and offset, without the file object and offset. Never throws: what cannot be said is
  /// left out.
  std::string symbolize(const CrashRecord& record) noexcept;

  /// Appends what stands at `offset` of the object in `path`: a line, or several where functions were inlined.
  void append_lines(const std::string& path, std::uint64_t offset, std::vector<StackLine>& lines);

 private:
  struct Object {
    ObjectSymbols symbols;
    std::map<std::uint64_t, std::vector<SourceFrame>> known;  ///< By offset.
  };

  const std::vector<SourceFrame>& names_at(const std::string& path, std::uint64_t offset);

  std::map<std::string, Object> objects_;
};

/// The same with objects and offsets only: opens nothing, and is what there is without a clerk.
std::string stack_without_names(const CrashRecord& record) noexcept;

}  // namespace retinue
