#include "torch_contenders.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "retinue/torch/process_group.h"
#include "retinue/torch/shared_tensor.h"

namespace retinue::bench {
namespace {

/// One rank's side: whole buffers, and views of their blocks.
struct Blocks {
  int rank;
  int ranks;
  at::Tensor input = {};
  at::Tensor output = {};
  std::vector<at::Tensor> inputs = {};
  std::vector<at::Tensor> outputs = {};
};

std::vector<std::vector<at::Tensor>> at_root(const Blocks& b, const std::vector<at::Tensor>& list) {
  if (b.rank != 0) return {};
  return {list};
}

void all_gather(c10d::ProcessGroup& group, Blocks& b) {
  group.all_gather_single(b.output, b.input)->wait();
}

void gather(c10d::ProcessGroup& group, Blocks& b) {
  auto outputs = at_root(b, b.outputs);
  group.gather(outputs, b.inputs)->wait();
}

void scatter(c10d::ProcessGroup& group, Blocks& b) {
  auto inputs = at_root(b, b.inputs);
  group.scatter(b.outputs, inputs)->wait();
}

void reduce_scatter(c10d::ProcessGroup& group, Blocks& b) {
  group.reduce_scatter_single(b.output, b.input)->wait();
}

void all_to_all(c10d::ProcessGroup& group, Blocks& b) {
  std::vector<std::int64_t> even;
  group.all_to_all_single(b.output, b.input, even, even)->wait();
}

void send_from_root(c10d::ProcessGroup& group, Blocks& b) {
  if (b.rank != 0) {
    group.recv(b.outputs, 0, 0)->wait();
    return;
  }
  for (int rank = 1; rank < b.ranks; ++rank) {
    std::vector<at::Tensor> block = {b.inputs[static_cast<std::size_t>(rank)]};
    group.send(block, rank, 0)->wait();
  }
}

void send_around(c10d::ProcessGroup& group, Blocks& b) {
  const Work sent = group.send(b.inputs, (b.rank + 1) % b.ranks, 0);
  group.recv(b.outputs, (b.rank + b.ranks - 1) % b.ranks, 0)->wait();
  sent->wait();
}

struct TensorOp {
  std::string_view name;
  void (*call)(c10d::ProcessGroup& group, Blocks& blocks);
};

constexpr TensorOp kTensorOps[] = {
    {"all_reduce", [](c10d::ProcessGroup& group, Blocks& b) { group.allreduce(b.outputs)->wait(); }},
    {"broadcast", [](c10d::ProcessGroup& group, Blocks& b) { group.broadcast(b.outputs)->wait(); }},
    {"reduce", [](c10d::ProcessGroup& group, Blocks& b) { group.reduce(b.outputs)->wait(); }},
    {"all_gather", all_gather},
    {"gather", gather},
    {"scatter", scatter},
    {"reduce_scatter", reduce_scatter},
    {"all_to_all", all_to_all},
    {"send", send_from_root},
    {"sendrecv", send_around},
};

const TensorOp& tensor_op(std::string_view name) {
  for (const TensorOp& op : kTensorOps)
    if (op.name == name) return op;
  throw std::out_of_range("no collective of c10d " + std::string(name));
}

/// A buffer, and its blocks in `blocks`. Where a rank has none it is null.
at::Tensor make_buffer(Round::Buffer kind, std::int64_t count, std::size_t number, std::vector<at::Tensor>& blocks) {
  if (number == 0) return {};
  const std::int64_t all = count * static_cast<std::int64_t>(number);
  at::Tensor whole = kind == Round::Buffer::kJob ? shared_empty({all}) : torch::empty({all});
  blocks = whole.split(count);
  return whole;
}

float* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<float>() : nullptr;
}

void data_rank(RankContext& context, const DataRound& round) {
  torch::set_num_threads(1);
  const ProcessGroup group = init_process_group(context);
  const DataOp& op = data_op(round.op);
  const TensorOp& tensor = tensor_op(round.op);
  const auto count = static_cast<std::int64_t>(round.bytes / sizeof(float));
  Blocks blocks{.rank = context.rank(), .ranks = context.world_size()};
  const std::size_t outputs = op.is_in_place ? 1 : op.outputs_of(blocks.rank, blocks.ranks);
  blocks.output = make_buffer(round.buffer, count, outputs, blocks.outputs);
  if (!op.is_in_place)
    blocks.input = make_buffer(round.buffer, count, op.inputs_of(blocks.rank, blocks.ranks), blocks.inputs);
  const Buffers buffers = {.input = data_of(op.is_in_place ? blocks.output : blocks.input),
                           .output = data_of(blocks.output),
                           .count = static_cast<std::size_t>(count)};
  measure_verified(
      op, round, context, buffers,
      [&] {
        if (op.leaves_early) group->barrier()->wait();
      },
      [&] { tensor.call(*group, blocks); });
}

void barrier_rank(RankContext& context, const Round& round) {
  torch::set_num_threads(1);
  const ProcessGroup group = init_process_group(context);
  const auto nothing = [](int) {};
  measure_iterations(
      round, context, nothing, [&] { group->barrier()->wait(); }, nothing);
}

void init_rank(RankContext& context, const Round& round) {
  ProcessGroup group;
  const auto check = [&](int /*iteration*/) { group->barrier()->wait(); };
  measure_iterations(
      round, context, [](int /*iteration*/) {}, [&] { group = init_process_group(context); }, check);
}

constexpr std::int64_t kSide = 64;

void matmul_rank(RankContext& context, std::uint64_t results_offset) {
  torch::set_num_threads(1);
  const at::Tensor ones = torch::ones({kSide, kSide});
  context.memory()->at<double>(results_offset)[context.rank()] = ones.mm(ones).sum().item<double>();
}

}  // namespace

Contender c10d_data_op(std::string name, int ranks, const DataRound& round, TimesOf times) {
  return {std::move(name), [=] { return times(measure_round<data_rank>(ranks, round)); }};
}

Spans c10d_barrier_spans(int ranks, const Round& round) {
  return measure_round<barrier_rank>(ranks, round);
}

Spans c10d_init_spans(int ranks, const Round& round) {
  return measure_round<init_rank>(ranks, round);
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
