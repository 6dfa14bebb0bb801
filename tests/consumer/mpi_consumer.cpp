#include <cstdio>
#include <span>

#include "retinue/mpi/communicator.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  retinue::Communicator communicator = retinue::communicator_of(MPI_COMM_WORLD);
  int ranks = 1;
  communicator.all_reduce(std::span(&ranks, 1));
  if (communicator.rank() == 0 && ranks == communicator.size()) std::puts("consumer: ok");
  MPI_Finalize();
}
