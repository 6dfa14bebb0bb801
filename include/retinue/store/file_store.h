#pragma once

#include <memory>
#include <string>

#include "retinue/store/store.h"

namespace retinue {

struct FileStoreOptions {
  /// A path on a file system that all members see and that has locks. Its folder exists.
  std::string path = {};
  /// How many stores of this path the job makes in all. The last of them to be destroyed removes the file; a file that
  /// an earlier job left is refused. If a store gives another number than those that wait for the rest, it is refused,
  /// too, and their waits end with UsageError. 0 or less: unknown; the file stays, and its contents count.
  int world_size = 0;
  /// If true, the members stay until all have come. After that, a leaving member that is the last living one removes
  /// the file, whether or not all had come; a member that comes while all members of a job leave waits for their end.
  bool is_meeting = false;
  /// For a meeting at a path that nobody chose. If true, a file that an earlier job left is removed when all of that
  /// job have ended, and a new member waits for that. If false, such a file is refused.
  bool takes_over = false;
  /// If not empty, the file of a job of another name is refused.
  std::string job = {};
  /// For opening, and for calls without a deadline.
  Store::Time timeout = Store::kDefaultTimeout;
};

/// A store in a file: for hosts that share only a file system, and for those without a network.
///
/// The file is a log to which each change is appended under a lock. A member that is killed at any point blocks no
/// other; a half-written change is ignored. Members of other hosts are noticed by a check every 100 ms, members of this
/// host at once.
///
/// Threads: all functions, from any thread.
/// Errors: the constructor throws UsageError if the file belongs to an earlier or another job, or isn't a store's; it
/// names the path. Calls throw Closed if the file was removed; TimeoutError also if another process is stopped while it
/// holds the lock; UsageError in a fork of the process that made this store; SystemError, such as when the disk is
/// full.
/// Cost: the file grows with each change. A call takes some microseconds on a local disk.
class FileStore : public Store {
 public:
  explicit FileStore(const FileStoreOptions& options);
  ~FileStore() override;

  const std::string& path() const noexcept;
  std::string name() const override;

 private:
  struct Impl;

  void do_set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::vector<std::string> do_multi_get(const std::vector<std::string>& keys, Deadline deadline) override;
  std::int64_t do_add(std::string_view key, std::int64_t delta, Deadline deadline) override;
  std::string do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                             Deadline deadline) override;
  void do_wait(const std::vector<std::string>& keys, Deadline deadline) override;
  bool do_check(const std::vector<std::string>& keys, Deadline deadline) override;
  bool do_delete_key(std::string_view key, Deadline deadline) override;
  std::int64_t do_num_keys(Deadline deadline) override;

  std::unique_ptr<Impl> impl_;
};

}  // namespace retinue
