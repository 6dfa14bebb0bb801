#include "retinue/store/file_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <optional>

#include "os/files/shared_file.h"
#include "retinue/base/error.h"
#include "store/key_table.h"
#include "store/log_file.h"

namespace retinue {
namespace {

// What members of other hosts write is looked for so often: nothing tells of it.
constexpr std::chrono::milliseconds kLookUp(100);
// A destructor's wait for its turn has an end, where another member is stopped.
constexpr std::chrono::seconds kLeaveTime(5);

std::string checked_path(const FileStoreOptions& options) {
  if (options.path.empty()) throw UsageError("FileStoreOptions::path is empty");
  if (options.world_size > kMostMembers)
    throw UsageError(
        fmt::format("FileStoreOptions::world_size is {}: it may be at most {}", options.world_size, kMostMembers));
  return std::filesystem::absolute(options.path);
}

}  // namespace

struct FileStore::Impl {
  Impl(const FileStoreOptions& options, Deadline deadline)
      : is_meeting(options.is_meeting), takes_over(options.is_meeting && options.takes_over) {
    const std::string path = checked_path(options);
    for (bool is_open = false; !is_open;) {
      file.emplace(path);
      is_open = open(options, deadline);
    }
  }

  std::optional<LogFile> file;
  bool is_meeting;
  bool takes_over;
  pid_t owner = getpid();
  std::int64_t member = -1;
  FileDescriptor mark;  ///< Open while this member is here: by its lock others know that it is alive.

  std::string name() const { return "FileStore " + file->path(); }

  /// In one turn, so that nobody finds a file of which none is a member yet. False: the file was that of a job that has
  /// ended meanwhile.
  bool open(const FileStoreOptions& options, Deadline deadline) {
    std::optional<FileWatch> watch;
    for (;;) {
      bool is_ending = false;
      try {
        file->change(deadline, [&](const LogFile::Turn& turn) {
          if (!turn.state().has_begun()) turn.begin(std::max(options.world_size, 0), options.job);
          is_ending = is_of_one_before(turn);
          if (is_ending) return;
          check_job(turn, options);
          if (options.world_size > 0) join(turn, options);
        });
      } catch (const Closed&) {
        if (deadline.passed()) throw;
        return false;
      }
      if (!is_ending) return true;
      if (deadline.passed())
        throw TimeoutError(fmt::format("{}: the ranks of an earlier group have not all left the file", name()));
      if (watch)
        watch->wait(Deadline::after(deadline.left(kLookUp)));
      else
        watch.emplace(file->path());
    }
  }

  /// Whether the file is that of a meeting whose members are about to leave, as where one has, or are dead, for whom it
  /// is removed.
  bool is_of_one_before(const LogFile::Turn& turn) const {
    if (!is_meeting) return false;
    const LogState& state = turn.state();
    const bool has_one_left = static_cast<std::int64_t>(state.present().size()) < state.joined();
    const std::size_t living = living_members(turn);
    if (living == state.present().size()) return has_one_left;
    if (!takes_over || (living > 0 && !has_one_left)) return false;
    if (living == 0) turn.remove();
    return true;
  }

  void check_job(const LogFile::Turn& turn, const FileStoreOptions& options) const {
    const LogState& state = turn.state();
    if (!options.job.empty() && !state.job().empty() && options.job != state.job())
      refuse(fmt::format("belongs to the job '{}', but this is the job '{}'", state.job(), options.job));
    if (options.world_size <= 0 || state.world_size() == options.world_size) return;
    // Those that wait for the rest of their job may be this process's.
    if (state.joined() < state.world_size() && living_members(turn) > 0)
      turn.append(Record::kRefusal, options.world_size, {});
    refuse(fmt::format("belongs to a job with {} members, but this job has {}",
                       state.world_size() == 0 ? "any number" : std::to_string(state.world_size()),
                       options.world_size));
  }

  /// This one is among them.
  static std::size_t living_members(const LogFile::Turn& turn) {
    const auto& present = turn.state().present();
    return static_cast<std::size_t>(std::count_if(present.begin(), present.end(), [&](std::int64_t other) {
      return is_mark_locked(turn.fd(), static_cast<std::uint32_t>(other));
    }));
  }

  /// Of a job whose members count differently not all will come.
  void check_nobody_was_refused(const LogState& state) const {
    if (member < 0 || state.refused_size() == 0 || state.joined() == state.world_size()) return;
    throw UsageError(
        fmt::format("{}: another process gave a world size of {}, but this job has {} members: all must give the same "
                    "world size",
                    name(), state.refused_size(), state.world_size()));
  }

  void join(const LogFile::Turn& turn, const FileStoreOptions& options) {
    if (turn.state().joined() >= options.world_size)
      refuse(fmt::format("belongs to a job whose {} members have all joined already", options.world_size));
    for (const std::int64_t other : turn.state().present())
      if (!is_mark_locked(turn.fd(), static_cast<std::uint32_t>(other)))
        refuse(fmt::format("was left over from a job whose member {} (in the order of joining) died", other));
    member = turn.state().joined();
    std::optional<FileDescriptor> opened = open_shared_file(file->path());
    if (!opened) throw Closed(fmt::format("{}: somebody deleted the file", name()));
    mark = *std::move(opened);
    lock_mark(mark.get(), static_cast<std::uint32_t>(member));
    turn.append(Record::kJoin, member, {});
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw UsageError(fmt::format("the store's file {} {}: {}", file->path(), why,
                                 takes_over ? "end all ranks of this job, and start them again"
                                            : "if no such job is running, delete it; else choose another path"));
  }

  void leave() {
    file->change(Deadline::after(kLeaveTime), [&](const LogFile::Turn& turn) {
      const LogState& state = turn.state();
      const bool is_only_one = state.present().size() == 1 || (is_meeting && living_members(turn) == 1);
      const bool is_last = is_only_one && (is_meeting || state.joined() == state.world_size());
      // One step in either case: who is killed before it has not left, and who is killed after it has.
      is_last ? turn.remove() : turn.append(Record::kLeave, member, {});
    });
  }

  void check_owner() const {
    if (getpid() != owner)
      throw UsageError(fmt::format("{} was opened by process {}, of which this process is a fork: create a store here",
                                   name(), owner));
  }

  /// What `body` says of the file in a turn of this member's; in change() it may write.
  template <class Body>
  auto look(Deadline deadline, Body body) {
    check_owner();
    std::invoke_result_t<Body, const LogState&> said;
    file->look(deadline, [&](const LogState& state) { said = body(state); });
    return said;
  }
  template <class Body>
  auto change(Deadline deadline, Body body) {
    check_owner();
    std::invoke_result_t<Body, const LogFile::Turn&> said;
    file->change(deadline, [&](const LogFile::Turn& turn) { said = body(turn); });
    return said;
  }

  /// `body` with a table that has the keys.
  void wait_for(const std::vector<std::string>& keys, Deadline deadline,
                const std::function<void(const KeyTable&)>& body) {
    std::optional<FileWatch> watch;
    for (;;) {
      // Who only looks once waits for its turn all the same.
      const Deadline turn_end = deadline.passed() ? Deadline::after(kLeaveTime) : deadline;
      const std::vector<std::string> missing = look(turn_end, [&](const LogState& state) {
        std::vector<std::string> not_there = state.table().missing(keys);
        if (not_there.empty())
          body(state.table());
        else
          check_nobody_was_refused(state);
        return not_there;
      });
      if (missing.empty()) return;
      if (deadline.passed()) throw_missing(name(), missing);
      if (watch)
        watch->wait(Deadline::after(deadline.left(kLookUp)));
      else
        watch.emplace(file->path());  // And then one more look, for what was set before.
    }
  }
};

FileStore::FileStore(const FileStoreOptions& options)
    : Store(options.timeout), impl_(std::make_unique<Impl>(options, Deadline::after(options.timeout))) {}

FileStore::~FileStore() {
  // A fork is no member.
  if (impl_ == nullptr || impl_->member < 0 || impl_->owner != getpid()) return;
  try {
    impl_->leave();
  } catch (const std::exception&) {
    // The file was removed, or another member is stopped with the lock: it stays then, and says so to the next job.
  }
}

const std::string& FileStore::path() const noexcept {
  return impl_->file->path();
}
std::string FileStore::name() const {
  return impl_->name();
}

void FileStore::do_set(std::string_view key, std::string_view value, Deadline deadline) {
  impl_->check_owner();
  impl_->file->change(deadline, [&](const LogFile::Turn& turn) {
    turn.append(Record::kSet, 0, {std::string(key), std::string(value)});
  });
}

std::vector<std::string> FileStore::do_multi_get(const std::vector<std::string>& keys, Deadline deadline) {
  std::vector<std::string> values;
  impl_->wait_for(keys, deadline, [&](const KeyTable& table) { values = table.values(keys); });
  return values;
}

std::int64_t FileStore::do_add(std::string_view key, std::int64_t delta, Deadline deadline) {
  return impl_->change(deadline, [&](const LogFile::Turn& turn) {
    const std::int64_t sum = turn.state().table().sum(key, delta);
    turn.append(Record::kSet, 0, {std::string(key), std::to_string(sum)});
    return sum;
  });
}

std::string FileStore::do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                      Deadline deadline) {
  return impl_->change(deadline, [&](const LogFile::Turn& turn) {
    const KeyTable& table = turn.state().table();
    if (table.matches(key, expected)) turn.append(Record::kSet, 0, {std::string(key), std::string(desired)});
    return table.value_or(key, expected);
  });
}

void FileStore::do_wait(const std::vector<std::string>& keys, Deadline deadline) {
  impl_->wait_for(keys, deadline, [](const KeyTable&) {});
}

bool FileStore::do_check(const std::vector<std::string>& keys, Deadline deadline) {
  return impl_->look(deadline, [&](const LogState& state) { return state.table().has(keys); });
}

bool FileStore::do_delete_key(std::string_view key, Deadline deadline) {
  return impl_->change(deadline, [&](const LogFile::Turn& turn) {
    const bool was_there = turn.state().table().find(key) != nullptr;
    if (was_there) turn.append(Record::kDelete, 0, {std::string(key)});
    return was_there;
  });
}

std::int64_t FileStore::do_num_keys(Deadline deadline) {
  const auto count = [](const LogState& state) { return static_cast<std::int64_t>(state.table().size()); };
  return impl_->look(deadline, count);
}

}  // namespace retinue
