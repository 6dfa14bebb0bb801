#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "os/files/file_descriptor.h"
#include "process/logs/caller_rights.h"
#include "process/logs/log_request.h"
#include "process/logs/tee_board.h"

namespace retinue {

/// The guardian's side of a context's logs: a forwarder process that shows them, if any are shown, and the removal of a
/// temporary directory. Reacts to events and deadlines and never blocks.
///
/// Ranks write to files and know nothing of the forwarder: if it is killed, another one continues where it stopped.
class LogForwarder {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Files { kKeep, kRemoveTemporary };

  /// `standard`: descriptors 0, 1, 2 of the caller, whose consoles the last two are. Forks the helper.
  LogForwarder(const LogRequest& logs, const std::vector<FileDescriptor>& standard, CallerRights rights);

  bool owns(pid_t pid) const { return pid != 0 && pid == pid_; }
  void on_exit(int status);

  /// All ranks have ended: what is left is shown, then the files are kept or removed.
  void finish(Files files);
  /// The program is gone: as finish(), but in a shorter time, and nothing is removed.
  void limit_drain();
  void on_time(Clock::time_point now);
  std::optional<Clock::time_point> next_time() const { return deadline_; }
  bool is_done() const { return is_finishing_ && pid_ == 0; }

  /// Descriptors that no rank should have.
  std::vector<int> fds() const { return {wake_.get(), output_.get(), error_.get()}; }

 private:
  enum class Task { kNone, kShow, kRemove };

  void start_showing();
  void start_removing();
  [[noreturn]] void run_forwarder(pid_t guardian) const;
  void order(TeeBoard::Order order);
  void replace_killed(int status);
  /// One line on the console, unless nobody takes it.
  void print(const std::string& text) const;

  const LogRequest& logs_;
  CallerRights rights_;
  std::optional<TeeBoard> board_;
  FileDescriptor wake_;
  FileDescriptor output_;
  FileDescriptor error_;
  pid_t pid_ = 0;
  Task task_ = Task::kNone;
  bool is_unshown_ = false;  ///< Some of the output was not shown for want of a helper.
  bool is_finishing_ = false;
  bool has_said_killed_ = false;
  int starts_ = 0;
  Files files_ = Files::kKeep;
  std::uint64_t seen_written_bytes_ = 0;
  std::optional<Clock::time_point> deadline_;
};

}  // namespace retinue
