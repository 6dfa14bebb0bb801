// A program of mpirun's that sums over all ranks, within each host by Retinue and only between hosts by MPI:
//
//   mpirun -n 4 mpi_hosts
#include "retinue/mpi/communicator.h"

#include <fmt/core.h>

#include <cstddef>
#include <exception>
#include <span>
#include <vector>

namespace {

// [all_reduce]
/// All ranks of a host, and, in rank 0 of each host, the hosts.
struct Hosts {
  explicit Hosts(MPI_Comm world) : on_host(ranks_of_host(world)) {
    MPI_Comm_split(world, on_host.rank() == 0 ? 0 : MPI_UNDEFINED, 0, &leaders);
  }

  static retinue::Communicator ranks_of_host(MPI_Comm world) {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm);
    retinue::Communicator communicator = retinue::communicator_of(comm);
    MPI_Comm_free(&comm);  // It is of no more use: MPI has no part in what follows.
    return communicator;
  }

  void all_reduce(std::span<double> data) {
    on_host.reduce(data, data, 0);
    if (on_host.rank() == 0)
      MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_DOUBLE, MPI_SUM, leaders);
    on_host.broadcast(data, 0);
  }

  retinue::Communicator on_host;
  MPI_Comm leaders = MPI_COMM_NULL;
};
// [/all_reduce]

constexpr std::size_t kNumbers = 100'000;

/// The same sums as by MPI alone: of whole numbers, so that the order doesn't matter.
bool sums_as_mpi() {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  Hosts hosts(MPI_COMM_WORLD);
  std::vector<double> data(kNumbers);
  for (std::size_t i = 0; i < kNumbers; ++i) data[i] = static_cast<double>(i % 100) + rank;
  std::vector<double> expected(kNumbers);
  MPI_Allreduce(data.data(), expected.data(), static_cast<int>(kNumbers), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  hosts.all_reduce(data);
  if (rank == 0 && data == expected) fmt::print("mpi_hosts: ok ranks={} numbers={}\n", size, kNumbers);
  if (hosts.leaders != MPI_COMM_NULL) MPI_Comm_free(&hosts.leaders);
  return data == expected;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    if (!sums_as_mpi()) MPI_Abort(MPI_COMM_WORLD, 1);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
