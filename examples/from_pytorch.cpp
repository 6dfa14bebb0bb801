// What a LibTorch program does with several processes, for those who know how PyTorch does it: from_pytorch.py does the
// same and prints the same lines.
//
//   from_pytorch FOLDER                     starts all processes itself
//   retinue run -n 2 from_pytorch FOLDER    its ranks are those of the command
//
// FOLDER is where the checkpoint is written.
// [includes]
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/ipc/queue.h"
#include "retinue/launch/process.h"
#include "retinue/launch/spawn.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/distributed_sampler.h"
#include "retinue/torch/messages.h"
#include "retinue/torch/process_group.h"
#include "retinue/torch/shared_tensor.h"
#include "retinue/torch/tensor_archive.h"

std::vector<std::int64_t> to_list(const at::Tensor& tensor) {
  const auto* begin = tensor.const_data_ptr<std::int64_t>();
  return {begin, begin + tensor.numel()};
}
// [/includes]

// [processes]
void greet(int rank, const std::string& text) {
  fmt::print("rank {}: {}\n", rank, text);
}

void check(int rank, int limit) {
  if (rank > limit) throw std::out_of_range(fmt::format("rank {} is beyond {}", rank, limit));
}

void start_processes() {
  retinue::spawn<greet>({.nprocs = 2}, "spawned");  // Waits for the ranks, and throws the first failure.

  retinue::ProcessContext ranks =
      retinue::spawn<check>({.nprocs = 2, .start_method = retinue::StartMethod::kFork, .join = false}, 0);
  try {
    ranks.join();
  } catch (const retinue::ProcessRaisedException& failure) {
    fmt::print("rank {} failed\n", failure.rank());
  }

  retinue::Process<greet> process(7, "alone");
  process.start();
  process.join();
  fmt::print("exit code {}\n", *process.exitcode());
}
// [/processes]

// [queues]
void double_rows(const at::Tensor& table, retinue::Queue<std::int64_t> tasks, retinue::Queue<at::Tensor> results) {
  try {
    for (;;) {
      const at::Tensor row = table[tasks.get()];
      row.mul_(2);  // In the memory of the parent's tensor.
      results.put(row);
    }
  } catch (const retinue::Closed&) {
    // The parent closed the queue.
  }
}

void share_tensors() {
  const at::Tensor table = retinue::share_memory_(torch::arange(6).reshape({3, 2}));
  retinue::Queue<std::int64_t> tasks({.capacity = 3});
  retinue::Queue<at::Tensor> results({.capacity = 3});
  std::vector<retinue::Process<double_rows>> workers;
  for (int i = 0; i < 2; ++i) workers.emplace_back(table, tasks, results);
  for (auto& worker : workers) worker.start();
  for (std::int64_t row = 0; row < 3; ++row) tasks.put(row);
  std::int64_t total = 0;
  for (int i = 0; i < 3; ++i) total += results.get().sum().item<std::int64_t>();
  tasks.close();  // The workers end.
  for (auto& worker : workers) worker.join();
  fmt::print("sum of the rows {}, table {}\n", total, to_list(table));
}
// [/queues]

// [collectives]
void run_collectives(const retinue::ProcessGroup& group) {
  const int rank = group->getRank();
  const at::Tensor total = torch::tensor({rank + 1});
  retinue::all_reduce(total, group);

  const at::Tensor largest = torch::tensor({rank * 10});
  const retinue::Work work = retinue::all_reduce(largest, group, {.op = c10d::ReduceOp::MAX, .async_op = true});
  work->wait();

  std::vector<at::Tensor> parts;
  for (int i = 0; i < group->getSize(); ++i) parts.push_back(torch::empty({2}, torch::kInt64));
  retinue::all_gather(parts, torch::tensor({rank, rank + 5}), group);

  const at::Tensor seed = torch::tensor({rank + 42});
  retinue::broadcast(seed, group, {.src = 0});
  retinue::barrier(group);
  fmt::print("rank {}: sum {}, largest {}, all {}, seed {}\n", rank, total.item<std::int64_t>(),
             largest.item<std::int64_t>(), to_list(torch::cat(parts)), seed.item<std::int64_t>());
}
// [/collectives]

// [messages]
void pass_messages(const retinue::ProcessGroup& group) {
  const int rank = group->getRank();
  const int size = group->getSize();
  const at::Tensor sent = torch::tensor({rank});
  const at::Tensor received = torch::empty({1}, torch::kInt64);
  const std::vector<retinue::Work> works = {retinue::isend(sent, group, /*dst=*/(rank + 1) % size),
                                            retinue::irecv(received, group, /*src=*/(rank + size - 1) % size)};
  for (const retinue::Work& work : works) work->wait();

  const at::Tensor weights = torch::zeros({3});
  if (rank == 0) {
    retinue::send(torch::ones({3}), group, /*dst=*/1, /*tag=*/7);
  } else if (rank == 1) {
    retinue::recv(weights, group, /*src=*/0, /*tag=*/7);
  }
  fmt::print("rank {}: got {} and {:.0f}\n", rank, received.item<std::int64_t>(), weights.sum().item<double>());
}
// [/messages]

// [training]
void save_checkpoint(const std::string& path, const torch::nn::Linear& net, const torch::optim::SGD& optimizer,
                     std::int64_t epoch) {
  torch::serialize::OutputArchive all;
  torch::serialize::OutputArchive net_part;
  torch::serialize::OutputArchive optimizer_part;
  net->save(net_part);
  optimizer.save(optimizer_part);
  all.write("net", net_part);
  all.write("optimizer", optimizer_part);
  all.write("epoch", c10::IValue(epoch));
  all.save_to(path + ".part");
  std::filesystem::rename(path + ".part", path);
}

std::int64_t load_checkpoint(const std::string& path, torch::nn::Linear& net, torch::optim::SGD& optimizer) {
  torch::serialize::InputArchive all;
  torch::serialize::InputArchive net_part;
  torch::serialize::InputArchive optimizer_part;
  c10::IValue epoch;
  all.load_from(path);
  all.read("net", net_part);
  all.read("optimizer", optimizer_part);
  all.read("epoch", epoch);
  net->load(net_part);
  optimizer.load(optimizer_part);
  return epoch.toInt();
}

void train(const retinue::ProcessGroup& group, std::int64_t last_epoch, const std::string& path) {
  torch::manual_seed(0);
  torch::nn::Linear net(1, 1);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(/*lr=*/0.1).momentum(0.5));
  std::int64_t first_epoch = 0;
  if (std::filesystem::exists(path)) first_epoch = load_checkpoint(path, net, optimizer) + 1;
  retinue::DistributedDataParallel model(net, group);  // All ranks get the parameters of rank 0.

  auto points = torch::data::datasets::TensorDataset(torch::linspace(-1, 1, 1000).unsqueeze(1))
                    .map(torch::data::transforms::Stack<torch::data::TensorExample>());
  retinue::DistributedSampler sampler(1000, group);
  auto loader = torch::data::make_data_loader(std::move(points), sampler, /*options=*/50);
  for (std::int64_t epoch = first_epoch; epoch < last_epoch; ++epoch) {
    sampler.set_epoch(epoch);  // Otherwise every epoch has the same order.
    for (const auto& batch : *loader) {
      optimizer.zero_grad();
      torch::mse_loss(model(batch.data), 2 * batch.data + 1).backward();
      optimizer.step();
    }
    if (group->getRank() == 0) save_checkpoint(path, net, optimizer, epoch);
  }
  retinue::barrier(group);  // The checkpoint is complete.
  if (group->getRank() == 0)
    fmt::print("from epoch {}: y = {:.2f} x + {:.2f}\n", first_epoch, net->weight.item<double>(),
               net->bias.item<double>());
}
// [/training]

// [group]
void run_rank(retinue::RankContext& context, const std::string& folder) {
  torch::set_num_threads(context.cpus_per_rank());
  const retinue::ProcessGroup group = retinue::init_process_group(context);
  run_collectives(group);
  pass_messages(group);
  const std::string path = folder + "/checkpoint.pt";
  train(group, 3, path);
  train(group, 6, path);  // Continues with epoch 3.
}
// [/group]

// [main]
int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  const std::string folder = argc > 1 ? argv[1] : ".";
  if (runtime.is_rank()) {  // Started by `retinue run`.
    retinue::RankContext context = runtime.rank_context();
    run_rank(context, folder);
    return 0;
  }
  start_processes();
  share_tensors();
  retinue::spawn<run_rank>({.nprocs = 2}, folder);
}
// [/main]
