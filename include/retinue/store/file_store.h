#pragma once

#include <memory>
#include <string>

#include "retinue/store/store.h"

namespace retinue {

struct FileStoreOptions {
  /// On a file system that all members see, and that has locks. Its folder exists.
  std::string path = {};
  /// How many stores of this path the job makes in all; the last of them that is destroyed removes the file, and a file
  /// that an earlier job left is refused. Who gives another number than those that wait for the rest is refused, too,
  /// and their waits end with UsageError. 0 or less: unknown, the file stays, and what is in it counts.
  int world_size = 0;
  /// The members stay until all have come, as who meets does. Then a member that leaves as the last one that lives
  /// removes the file, whether or not all had come, and who comes while a whole job's members leave waits for their
  /// end.
  bool is_meeting = false;
  /// Of a meeting at a path that nobody chose: a file that an earlier job left goes when all of that have ended, and
  /// who comes waits for that; else it is refused.
  bool takes_over = false;
  /// If it is not empty, the file of a job of another name is refused.
  std::string job = {};
  /// For opening, and for calls without a deadline.
  Store::Time timeout = Store::kDefaultTimeout;
};

/// A store in a file: for hosts that share no more than a file system, and for those without a network.
///
/// The file is a log to which each change is appended under a lock. A member that is killed anywhere in here stops
/// nobody; a half written change counts as none. Members of other hosts are noticed by looking every 100 ms, those of
/// this host at once.
///
/// Threads: all functions, from any thread.
/// Errors: of the constructor UsageError if the file is of an earlier or another job, or no store's; it names the path.
/// Of calls Closed when the file was removed; TimeoutError also when another process stands still with the lock;
/// UsageError in a fork of the process that made this; SystemError, as when the disk is full.
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
