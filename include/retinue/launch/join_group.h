#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "retinue/ipc/job_group.h"

namespace retinue {

/// How processes that Retinue didn't start exchange data before they share memory: by MPI, by sockets or by files.
struct GroupExchange {
  int rank = 0;
  int size = 1;
  /// Begins the group's name in errors. Rank 0's value counts.
  std::string name = "group";
  /// The advice in the error that is thrown if the ranks are on several hosts.
  std::string hosts_advice = "make a group for each host";
  /// Sends the `bytes` bytes at `own` to all ranks, and writes the bytes of all ranks, in rank order, to `all`. An
  /// exception that it throws affects this rank only, and join_group() passes it on.
  std::function<void(const void* own, void* all, std::size_t bytes)> all_gather = {};
};

/// Makes a group of processes on one host, however they were started. A Communicator is made of such a group.
///
/// If all processes are in one job, by a Runtime or join_job(), the group uses that job's memory. Otherwise it uses the
/// memory that an earlier call made for all of them, or rank 0 makes new memory: a sealed memfd that the others map. No
/// process looks after that memory; it is freed with the last process, and each process keeps it until the process
/// ends. JobMemory::current() doesn't change: to make blocks, queues or locks in the group's memory, pass
/// JobGroup::memory.
///
/// Blocking: as `all_gather`, which is called at most seven times, equally often on all ranks.
/// Threads: called by the main thread if memory is made.
/// Errors: the same on all ranks. NotOneHost if ranks are on several hosts or belong to several users or PID
/// namespaces; UsageError if versions of Retinue differ, if another thread calls it, if there are more than 1,022
/// ranks, or if RETINUE_JOB_MEMORY is invalid; Error with the text of any other error of a rank. An invalid exchange
/// throws UsageError on its own rank.
JobGroup join_group(const GroupExchange& exchange);

/// Returns a text that is the same for processes that may be able to share memory, as far as a process can know by
/// itself: it names the running kernel and the PID namespace. Only join_group() proves that they can.
std::string host_of_this_process();

}  // namespace retinue
