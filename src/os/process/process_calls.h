#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "os/files/file_descriptor.h"

/// The system calls on processes that glibc has no wrapper for, or whose wrapper is not enough.
namespace retinue {

/// Forks without an exit signal: the program's own wait() never sees the child; wait for it with __WALL.
/// The child is a complete glibc process (thread id and robust list are set), but no atfork handlers run: call it only
/// while the process has one thread. Returns 0 in the child. Errors: SystemError.
pid_t fork_unnoticed();

/// Starts a child that is to execute a program, as vfork does: until it does, or ends, it shares this process's memory,
/// and the caller stands still. Nothing is copied, so that it costs the same however large this process is.
///
/// In the child `body` runs with signal handlers reset, and must not return. What it changes in memory stays changed
/// here, except for `environ`; what it allocates and does not free before it executes is lost.
/// Under a sanitizer, which knows one stack for a thread, it is a fork. Returns the pid; -1 and errno: there is none.
/// Blocking: until the child has executed or ended.
pid_t fork_to_execute(const std::function<void()>& body, std::size_t stack_bytes);

FileDescriptor open_pidfd(pid_t pid);

/// The process behind `pidfd`, as this process's PID namespace has it. 0: it has ended, or is not in there, or `pidfd`
/// is something else.
pid_t pid_of(int pidfd);

/// Waits until the process behind `pidfd` has ended, at most `timeout`. Returns whether it has.
bool wait_for_exit(int pidfd, std::chrono::milliseconds timeout);

/// Sends `signal` to the process behind `pidfd`, unless it has ended, and to no later one of its number.
/// Errors: SystemError.
void send_signal_to(int pidfd, int signal);

/// Tasks of this process: 1 means that forking is safe.
int count_tasks();

/// Children of this process that are alive or not yet waited for; complete only in a single-threaded process.
/// Errors: SystemError when they cannot be seen, as without a free descriptor: that does not mean that there are none.
std::vector<pid_t> children_of_self();

/// Adopts orphaned descendants.
void become_subreaper();

/// Kills this process with SIGKILL when its parent's thread dies; ends it at once if the parent is not `parent` any
/// more.
void die_with_parent(pid_t parent);

/// Lets a process and its descendants look at this one's stacks where the kernel (Yama) would let its ancestors only.
void allow_ptrace(pid_t process);

/// Path of the running executable; it may have been removed or replaced since. "/proc/self/exe" where it can't be read.
std::string executable_path();

/// Which file that is, whatever its path is now.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};
FileIdentity executable_identity();

/// wait() status of a process that has ended and was not waited for yet, whoever its parent is; -1 if it can't be read.
int exit_status_of_zombie(pid_t pid);

/// The same of a process that is on its way out: the kernel settles the status before it takes down the memory, which
/// lasts 60 ms per GB of small pages. -1 while it runs, too.
int exit_status_of_ending(pid_t pid);

/// The same of a process that was waited for, by a pidfd that was opened before; -1 where the kernel, before
/// Linux 6.15, doesn't tell.
int exit_status_of_reaped(int pidfd);

/// Makes these the descriptors 0, 1, 2 and so on, and closes all others. Errors: SystemError.
void keep_only_descriptors(const std::vector<int>& fds);

/// Raises the limit on open descriptors as far as it goes.
void raise_descriptor_limit();

}  // namespace retinue
