// A training whose ranks are started and connected as in many PyTorch programs: mp.spawn(main_worker, nprocs=4,
// args=(4, args)), and in each rank init_process_group(init_method="tcp://127.0.0.1:23456", world_size=4, rank=rank).
//
//   replace_launcher [tcp://HOST:PORT]
// [program]
#include <fmt/format.h>
#include <torch/torch.h>

#include <cereal/types/string.hpp>
#include <string>

#include "retinue/launch/spawn.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/process_group.h"

struct Args {
  std::string dist_url = "tcp://127.0.0.1:23456";
  int steps = 100;
  double lr = 0.1;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(dist_url, steps, lr);
  }
};

void main_worker(int rank, int nprocs, const Args& args) {
  torch::set_num_threads(1);
  const retinue::ProcessGroup group =
      retinue::init_process_group({.init_method = args.dist_url, .world_size = nprocs, .rank = rank});
  retinue::DistributedDataParallel model(torch::nn::Linear(2, 1), group);
  torch::optim::SGD optimizer(model.parameters(), args.lr);

  torch::manual_seed(rank);  // Each rank has its own points.
  const torch::Tensor x = torch::rand({256, 2});
  const torch::Tensor y = 3 * x.slice(1, 0, 1) - 2 * x.slice(1, 1, 2) + 1;
  torch::Tensor loss;
  for (int step = 0; step < args.steps; ++step) {
    optimizer.zero_grad();
    loss = torch::mse_loss(model(x), y);
    loss.backward();
    optimizer.step();
  }
  retinue::all_reduce(loss = loss.detach() / nprocs, group);
  if (rank == 0) fmt::print("{} ranks, loss {:.6f}\n", nprocs, loss.item<float>());
}

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  Args args;
  if (argc > 1) args.dist_url = argv[1];
  retinue::spawn<main_worker>({.nprocs = 4}, 4, args);
}
// [/program]
