#include "torch_contenders.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "collective/data_ops.h"
#include "retinue/torch/process_group.h"
#include "retinue/torch/shared_tensor.h"

namespace retinue::bench {
namespace {

void all_reduce_rank(RankContext& context, const Round& round) {
  torch::set_num_threads(1);
  const ProcessGroup group = init_process_group(context);
  const auto count = static_cast<std::int64_t>(round.bytes / sizeof(float));
  const bool shared = round.buffer == Round::Buffer::kJob;
  std::vector<at::Tensor> tensors = {shared ? shared_empty({count}) : torch::empty({count})};
  float* const data = tensors[0].data_ptr<float>();
  const Buffers buffers = {.input = data, .output = data, .count = static_cast<std::size_t>(count)};
  measure_verified(
      data_op("all_reduce"), round, context, buffers, [] {}, [&] { group->allreduce(tensors)->wait(); });
}

void barrier_rank(RankContext& context, const Round& round) {
  torch::set_num_threads(1);
  const ProcessGroup group = init_process_group(context);
  const auto nothing = [](int) {};
  measure_iterations(
      round, context, nothing, [&] { group->barrier()->wait(); }, nothing);
}

constexpr std::int64_t kSide = 64;

void matmul_rank(RankContext& context, std::uint64_t results_offset) {
  torch::set_num_threads(1);
  const at::Tensor ones = torch::ones({kSide, kSide});
  context.memory()->at<double>(results_offset)[context.rank()] = ones.mm(ones).sum().item<double>();
}

}  // namespace

Contender c10d_all_reduce(std::string name, int ranks, const Round& round) {
  return spawned_collective<all_reduce_rank>(std::move(name), ranks, round);
}

Spans c10d_barrier_spans(int ranks, const Round& round) {
  return measure_round<barrier_rank>(ranks, round);
}

double torch_spawn_us(int ranks, StartMethod method) {
  JobMemory& memory = *Runtime::current().memory();
  const BlockHandle block = memory.allocate(sizeof(double) * static_cast<std::size_t>(ranks));
  double* results = memory.at<double>(block.offset);
  std::fill(results, results + ranks, 0.0);
  const std::int64_t start = now_ns();
  spawn<matmul_rank>({.nprocs = ranks, .start_method = method}, block.offset);
  const std::int64_t end = now_ns();
  const bool right = std::count(results, results + ranks, double{kSide * kSide * kSide}) == ranks;
  memory.release(block);
  if (!right) throw std::logic_error("spawn: a rank's matrix product is wrong");
  return static_cast<double>(end - start) / 1000;
}

}  // namespace retinue::bench
