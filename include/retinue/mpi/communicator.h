#pragma once

#include <mpi.h>

#include <string>

#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "retinue/launch/join_group.h"

/// Makes Retinue's groups from MPI's communicators, for programs whose ranks mpirun, srun or the like started.
///
/// Header-only, compiled against the program's MPI: each MPI has its own ABI, and the library depends on none.
namespace retinue {
namespace detail {

/// A guard for a scope in which calls on `comm` return their errors; by default errors end the program.
class ReturnedMpiErrors {
 public:
  explicit ReturnedMpiErrors(MPI_Comm comm) : comm_(comm) {
    check(MPI_Comm_get_errhandler(comm_, &before_), "MPI_Comm_get_errhandler");
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  ~ReturnedMpiErrors() {
    MPI_Comm_set_errhandler(comm_, before_);
    MPI_Errhandler_free(&before_);
  }
  ReturnedMpiErrors(const ReturnedMpiErrors&) = delete;
  ReturnedMpiErrors& operator=(const ReturnedMpiErrors&) = delete;

  static void check(int code, const char* call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int bytes = 0;
    MPI_Error_string(code, text, &bytes);
    throw Error(std::string("making a group of an MPI communicator: ") + call + ": " + text);
  }

 private:
  MPI_Comm comm_;
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
};

inline void check_mpi_is_usable() {
  int has_begun = 0;
  int has_ended = 0;
  MPI_Initialized(&has_begun);
  MPI_Finalized(&has_ended);
  if (has_begun == 0) throw UsageError("making a group of an MPI communicator: MPI isn't initialised; call MPI_Init");
  if (has_ended != 0)
    throw UsageError(
        "making a group of an MPI communicator: MPI is finalised; make the group before MPI_Finalize (it can be "
        "used afterwards)");
}

}  // namespace detail

/// Returns the processes of `comm`, all of one host, as a group with the same ranks; see join_group() for the memory
/// that it uses. For ranks of several hosts, split first: MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, ...).
///
/// Blocking: as a collective of MPI on `comm`, which it is. Afterwards the group is independent of MPI: the
/// communicator may be freed and MPI finalised before the group ends, or after it.
/// Threads: the main thread must call it if memory is made.
/// Errors: the same on all ranks, as join_group(); UsageError for MPI_COMM_NULL, an inter-communicator, and outside of
/// MPI_Init and MPI_Finalize. Error, on its own rank, with MPI's text if MPI fails.
inline JobGroup job_group_of(MPI_Comm comm) {
  detail::check_mpi_is_usable();
  if (comm == MPI_COMM_NULL)
    throw UsageError(
        "making a group of an MPI communicator: it is MPI_COMM_NULL; ranks to which MPI_Comm_split gave no "
        "communicator have no group");
  const detail::ReturnedMpiErrors errors(comm);
  int is_inter = 0;
  errors.check(MPI_Comm_test_inter(comm, &is_inter), "MPI_Comm_test_inter");
  if (is_inter != 0)
    throw UsageError(
        "making a group of an MPI communicator: an inter-communicator has two groups; merge them first with "
        "MPI_Intercomm_merge");
  GroupExchange exchange;
  errors.check(MPI_Comm_rank(comm, &exchange.rank), "MPI_Comm_rank");
  errors.check(MPI_Comm_size(comm, &exchange.size), "MPI_Comm_size");
  char name[MPI_MAX_OBJECT_NAME] = "";
  int bytes = 0;
  errors.check(MPI_Comm_get_name(comm, name, &bytes), "MPI_Comm_get_name");
  exchange.name = bytes > 0 ? name : "MPI communicator";
  exchange.hosts_advice = "split it with MPI_Comm_split_type(..., MPI_COMM_TYPE_SHARED, ...) first";
  exchange.all_gather = [comm, &errors](const void* own, void* all, std::size_t own_bytes) {
    const auto count = static_cast<int>(own_bytes);
    errors.check(MPI_Allgather(own, count, MPI_BYTE, all, count, MPI_BYTE, comm), "MPI_Allgather");
  };
  return join_group(exchange);
}

/// Returns a communicator of the processes of `comm`: Communicator(job_group_of(comm), options, site).
inline Communicator communicator_of(MPI_Comm comm, const CommunicatorOptions& options = {}, CallSite site = {}) {
  return Communicator(job_group_of(comm), options, site);
}

}  // namespace retinue
