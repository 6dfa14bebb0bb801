// Two programs of every introduction to MPI, without MPI: ranks add up pi, and pass messages around a ring.
//
//   retinue run -n 4 from_mpi    as mpirun, srun and torchrun start it, too
// [program]
#include <fmt/format.h>

#include <span>

#include "retinue/collective/communicator.h"
#include "retinue/launch/join_world.h"
#include "retinue/launch/runtime.h"

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  retinue::Communicator world(retinue::join_world());
  const int rank = world.rank();
  const int size = world.size();

  // Each rank adds up its part of an integral that is pi.
  int intervals = rank == 0 ? 1'000'000 : 0;
  world.broadcast(std::span(&intervals, 1), /*root=*/0);
  const double width = 1.0 / intervals;
  double part = 0;
  double pi = 0;
  for (int i = rank; i < intervals; i += size) {
    const double x = width * (i + 0.5);
    part += width * 4 / (1 + x * x);
  }
  world.reduce(std::span(&part, 1), std::span(&pi, 1), /*root=*/0);
  if (rank == 0) fmt::print("pi is about {:.10f}\n", pi);

  // Each rank sends its number to the next rank of a ring.
  const int left = (rank + size - 1) % size;
  const int right = (rank + 1) % size;
  int received = -1;
  const retinue::Received message = world.sendrecv(std::span(&rank, 1), right, std::span(&received, 1), left);
  fmt::print("rank {} of {}: got {} from rank {}\n", rank, size, received, message.source);
}
// [/program]
