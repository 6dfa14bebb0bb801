#pragma once

#include <map>
#include <memory>
#include <string>

#include "ipc/crash_record.h"

namespace retinue {

class ObjectSymbols;

/// Turns the addresses of crash records into names, lines and files; opens each object once for all of them.
///
/// Runs in another process than the one that crashed, and reads the objects' files there.
/// Cost: reads the symbol table of every object on a stack: 0.3 s for LibTorch's.
class Symbolizer {
 public:
  Symbolizer();
  ~Symbolizer();

  /// The record's stack as text, one frame per line: `#3 train(retinue::RankContext&, int) at train.cpp:88
  /// (program+0x1234)`.
  ///
  /// Begins at the function that failed and ends at the entry: what lies further out is Retinue's own. Without debug
  /// information a frame is symbol and offset, without the file object and offset. Never throws: what cannot be said is
  /// left out.
  std::string symbolize(const CrashRecord& record) noexcept;

 private:
  const ObjectSymbols& symbols_of(const std::string& path);

  std::map<std::string, std::unique_ptr<ObjectSymbols>> objects_;
};

/// The same with objects and offsets only: opens nothing, and is what there is without a clerk.
std::string stack_without_names(const CrashRecord& record) noexcept;

}  // namespace retinue
