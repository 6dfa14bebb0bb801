#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "ipc/memory/crash_record.h"
#include "os/sync/futex.h"

/// How a failing rank writes its CrashRecord. All of it is async-signal-safe.
namespace retinue {

/// True for the one who may write: the first crash wins. Ends with complete_crash_record().
inline bool claim_crash_record(CrashRecord& record) {
  std::uint32_t empty = 0;
  if (!record.phase.compare_exchange_strong(empty, 1, std::memory_order_acq_rel)) return false;
  record.writer.store(gettid(), std::memory_order_relaxed);
  return true;
}

/// Whether this thread claimed the record and did not come to its end: what it crashed in, as an exception's what(), is
/// the better news.
inline bool is_own_unfinished_record(const CrashRecord& record) {
  return record.phase.load(std::memory_order_acquire) == 1 && record.writer.load(std::memory_order_relaxed) == gettid();
}

/// A signal that the program's own handler survived is not how the rank ends: what comes later may overwrite it.
inline bool reclaim_survived_signal(CrashRecord& record) {
  std::uint32_t complete = 2;
  if (record.kind != CrashKind::kSignal) return false;
  if (!record.phase.compare_exchange_strong(complete, 1, std::memory_order_acq_rel)) return false;
  record.writer.store(gettid(), std::memory_order_relaxed);
  return true;
}

/// Releases what was written to the readers' acquire of `phase`.
inline void complete_crash_record(CrashRecord& record) {
  record.phase.store(2, std::memory_order_release);
  futex_wake_all(record.phase);
}

/// A NUL-terminated text in a fixed array; what does not fit is left out.
template <std::size_t kBytes>
class FixedText {
 public:
  explicit FixedText(char (&buffer)[kBytes]) : buffer_(buffer) { buffer_[0] = '\0'; }

  FixedText& operator<<(std::string_view text) {
    const std::size_t bytes = std::min(text.size(), kBytes - 1 - used_);
    std::memcpy(buffer_ + used_, text.data(), bytes);
    used_ += bytes;
    buffer_[used_] = '\0';
    return *this;
  }

  FixedText& operator<<(std::uint64_t number) {
    char digits[20];
    char* const end = digits + sizeof digits;
    char* first = end;
    do {
      *--first = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    return *this << std::string_view(first, static_cast<std::size_t>(end - first));
  }

 private:
  char (&buffer_)[kBytes];
  std::size_t used_ = 0;
};

}  // namespace retinue
