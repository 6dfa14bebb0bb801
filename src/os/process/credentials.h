#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "os/process/process_stat.h"

namespace retinue {

/// User or group ids of a thread, as credentials(7) has them.
struct ThreadIds {
  std::uint32_t real = 0;
  std::uint32_t effective = 0;
  std::uint32_t saved = 0;
  std::uint32_t file_system = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(real, effective, saved, file_system);
  }
  friend bool operator==(const ThreadIds&, const ThreadIds&) = default;
};

/// What the kernel lets a thread do: credentials(7), capabilities(7), PR_SET_NO_NEW_PRIVS.
struct Credentials {
  ThreadIds user;
  ThreadIds group;
  std::vector<std::uint32_t> groups;  ///< Supplementary, sorted.
  // Sets of capabilities, a bit each.
  std::uint64_t inheritable = 0;
  std::uint64_t permitted = 0;
  std::uint64_t effective = 0;
  std::uint64_t bounding = 0;
  std::uint64_t ambient = 0;
  std::uint32_t securebits = 0;    ///< Known of the calling thread alone.
  std::uint32_t no_new_privs = 0;  ///< 1: executing a program gives it no more rights.
  std::uint32_t dumpable = 0;      ///< As PR_GET_DUMPABLE: of the calling thread alone.

  /// `status` is the calling thread's.
  static Credentials of_this_thread(const ProcessStatus& status);
  /// What any process's status says: without what is known of the calling thread alone.
  static Credentials of(const ProcessStatus& status);

  /// Makes them those of the calling thread, which has `now` and is the only one with its memory. The kernel forgets
  /// the thread's parent-death signal. Capabilities that `now` has not are left out. Errors: SystemError, where `now`
  /// does not allow it.
  void take(const Credentials& now) const;

  /// What a thread that has `now` must take for an execve() that gives no capability beyond these: it gives root all of
  /// the bounding set, whatever root has given up. These, where there is nothing to gain.
  Credentials before_exec(const Credentials& now) const;

  /// What a thread with these may do that one with `other` may not even after it has changed its own, as "user id 0";
  /// empty: nothing.
  std::string more_than(const Credentials& other) const;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(user, group, groups, inheritable, permitted, effective, bounding, ambient, securebits, no_new_privs,
            dumpable);
  }
  friend bool operator==(const Credentials&, const Credentials&) = default;
};

}  // namespace retinue
