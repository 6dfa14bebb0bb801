#pragma once

#include <string>

#include "ipc/crash_record.h"

namespace retinue {

/// The record's stack as text, one frame per line: `#3 train(retinue::RankContext&, int) at train.cpp:88
/// (program+0x1234)`.
///
/// Begins at the function that failed and ends at the entry: what lies further out is Retinue's own. Runs in another
/// process than the one that crashed, and reads the objects' files there. Without debug information a frame is symbol
/// and offset, without the file object and offset. Never throws: what cannot be said is left out.
/// Cost: reads the symbol table of every object on the stack.
std::string symbolize(const CrashRecord& record) noexcept;

}  // namespace retinue
