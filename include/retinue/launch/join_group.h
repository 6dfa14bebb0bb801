#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "retinue/ipc/job_group.h"

namespace retinue {

/// How processes that somebody else started reach each other before they share memory: by MPI, by sockets, by files.
struct GroupExchange {
  int rank = 0;
  int size = 1;
  /// Begins the group's name in errors; rank 0's counts.
  std::string name = "group";
  /// What the error about ranks on several hosts says they should do.
  std::string hosts_advice = "make a group for each host";
  /// Gives `bytes` bytes at `own` to all ranks, and writes those of all, in rank order, to `all`. What it throws is
  /// this rank's alone, and join_group() passes it on.
  std::function<void(const void* own, void* all, std::size_t bytes)> all_gather = {};
};

/// Makes processes of one host a group, whoever started them: what Communicator is made of.
///
/// Where all are in one job, by a Runtime or join_job(), that job's memory is the group's. Otherwise it is memory that
/// an earlier call made for all of them, or rank 0 makes some: a sealed memfd that the others map, without any process
/// to look after it, and gone with the last of them. Each process keeps it to its end. JobMemory::current() is what it
/// was: who wants blocks, queues or locks there names JobGroup::memory.
///
/// Blocking: as `all_gather`, which is called at most seven times, as often on all ranks.
/// Threads: called by the main thread wherever memory is made.
/// Errors: the same on all ranks. NotOneHost for ranks on several hosts, of several users or PID namespaces; UsageError
/// for different versions of Retinue, for other threads, more than 1,022 ranks, or a bad RETINUE_JOB_MEMORY; Error with
/// the text of a rank's other errors. UsageError, on its own rank, for an exchange that makes no sense.
JobGroup join_group(const GroupExchange& exchange);

/// Names what a process must have in common with others to share memory with them, as far as it can know by itself: the
/// running kernel and the PID namespace. join_group() alone proves it.
std::string host_of_this_process();

}  // namespace retinue
