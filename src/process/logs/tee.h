#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "os/files/file_descriptor.h"
#include "process/logs/console.h"
#include "process/logs/log_request.h"
#include "process/logs/tee_board.h"
#include "process/logs/tee_file.h"

namespace retinue {

/// How a log forwarder ends.
enum class TeeEnd : int {
  kDone = 0,      ///< The consoles have all that they still wanted.
  kGaveUp = 3,    ///< A console took nothing for too long.
  kTroubled = 4,  ///< It could not do its work, and said why.
};

/// The work of a log forwarder: shows the lines of a context's files on its consoles until the ranks have ended.
///
/// A file that changes wakes it once; then it reads it every few milliseconds until nothing came, and waits for the
/// next change. So an idle job costs nothing, and a busy one few wakes.
class Tee {
 public:
  struct Descriptors {
    int wake;             ///< An eventfd: there is a new order on the board.
    int guardian_pidfd;   ///< -1: the guardian is gone already.
    int standard_output;  ///< The consoles.
    int standard_error;
  };

  /// How many streams' progress it notes on the board.
  static std::size_t streams_of(const LogRequest& logs) { return 4 * logs.ranks.size(); }

  Tee(const LogRequest& logs, const TeeBoard& board, Descriptors descriptors);

  TeeEnd run();

 private:
  using Clock = std::chrono::steady_clock;

  /// What takes copies of some lines, for all ranks.
  struct CopyFile {
    std::string path;
    FileDescriptor file;
    Console console;
  };

  void add_streams(const LogRequest& logs, std::uint32_t bit);
  Console* add_copy_file(const std::string& path);
  /// Reads each active file once; returns whether one of them had more.
  bool read_active();
  /// Whether the file stays active.
  bool read_file(TeeFile& file, bool& has_more);
  TeeFile::Found read_with_few_descriptors(TeeFile& file);
  bool watch(TeeFile& file);
  void activate(TeeFile& file);
  void activate_all();
  void take_changes();
  void obey();
  void show_pending();
  void report_console(const Console& console, const std::string& name);
  void wait(bool has_more);
  std::optional<std::chrono::nanoseconds> longest_wait(bool has_more) const;
  bool can_read_some() const;
  bool is_any_pending() const;
  bool is_shown() const { return active_.empty() && !is_any_pending(); }
  bool is_stuck() const;

  const TeeBoard& board_;
  Descriptors descriptors_;
  Console output_;
  Console error_;
  std::deque<CopyFile> copies_;  ///< Never moved: files point to their consoles.
  std::vector<TeeFile> files_;
  std::vector<TeeFile*> active_;
  FileDescriptor changes_;
  std::multimap<int, TeeFile*> watched_;  ///< A file that is copied too is there twice.
  bool is_timed_ = false;                 ///< Some file can't be watched: all are looked at from time to time.
  bool is_ending_ = false;
  bool is_settled_ = false;  ///< Nobody writes any more.
  Clock::time_point last_progress_;
  std::string scratch_;
};

}  // namespace retinue
