#include "collective/data_ops.h"

#include <fmt/format.h>

#include <stdexcept>

#include "build_facts.h"

namespace retinue::bench {
namespace {

using Side = DataOp::Side;

constexpr Side kOneEverywhere = {DataOp::Blocks::kOne, DataOp::Blocks::kOne};
constexpr Side kOneAtRoot = {DataOp::Blocks::kOne, DataOp::Blocks::kNone};
constexpr Side kAllAtRoot = {DataOp::Blocks::kOnePerRank, DataOp::Blocks::kNone};
constexpr Side kOneElsewhere = {DataOp::Blocks::kNone, DataOp::Blocks::kOne};
constexpr Side kAllEverywhere = {DataOp::Blocks::kOnePerRank, DataOp::Blocks::kOnePerRank};

Source from_all(int, int ranks, int) {
  return {0, ranks - 1, 0};
}
Source from_root(int, int, int) {
  return {0, 0, 0};
}
Source from_each(int, int, int block) {
  return {block, block, 0};
}

Source from_root_for_me(int rank, int, int) {
  return {0, 0, rank};
}
Source from_each_for_me(int rank, int, int block) {
  return {block, block, rank};
}
Source from_all_for_me(int rank, int ranks, int) {
  return {0, ranks - 1, rank};
}
Source from_the_one_before(int rank, int ranks, int) {
  const int before = (rank + ranks - 1) % ranks;
  return {before, before, 0};
}
Source from_those_before(int rank, int, int) {
  return {0, rank, 0};
}

void send_from_root(Communicator& group, const Buffers& b) {
  if (group.rank() != 0) {
    group.recv(b.output_of(1), 0);
    return;
  }
  for (int rank = 1; rank < group.size(); ++rank)
    group.send(
        b.input_of(static_cast<std::size_t>(group.size())).subspan(static_cast<std::size_t>(rank) * b.count, b.count),
        rank);
}

void send_around(Communicator& group, const Buffers& b) {
  const int ranks = group.size();
  group.sendrecv(b.input_of(1), (group.rank() + 1) % ranks, b.output_of(1), (group.rank() + ranks - 1) % ranks);
}

std::size_t blocks_at_root(const Communicator& group) {
  return group.rank() == 0 ? static_cast<std::size_t>(group.size()) : 0;
}

constexpr DataOp kDataOps[] = {
    {.name = "all_reduce",
     .input = kOneEverywhere,
     .output = kOneEverywhere,
     .is_in_place = true,
     .source = from_all,
     .call = [](Communicator& group, const Buffers& b) { group.all_reduce(b.output_of(1)); }},
    {.name = "broadcast",
     .input = kOneAtRoot,
     .output = kOneEverywhere,
     .is_in_place = true,
     .leaves_early = true,
     .source = from_root,
     .call = [](Communicator& group, const Buffers& b) { group.broadcast(b.output_of(1), 0); }},
    {.name = "all_gather",
     .input = kOneEverywhere,
     .output = kAllEverywhere,
     .source = from_each,
     .call =
         [](Communicator& group, const Buffers& b) {
           group.all_gather(b.input_of(1), b.output_of(static_cast<std::size_t>(group.size())));
         }},
    {.name = "reduce",
     .input = kOneEverywhere,
     .output = kOneAtRoot,
     .is_in_place = true,
     .leaves_early = true,
     .source = from_all,
     .call = [](Communicator& group,
                const Buffers& b) { group.reduce(std::span<const float>(b.output_of(1)), b.output_of(1), 0); }},
    {.name = "gather",
     .input = kOneEverywhere,
     .output = kAllAtRoot,
     .leaves_early = true,
     .source = from_each,
     .call = [](Communicator& group,
                const Buffers& b) { group.gather(b.input_of(1), b.output_of(blocks_at_root(group)), 0); }},
    {.name = "scatter",
     .input = kAllAtRoot,
     .output = kOneEverywhere,
     .leaves_early = true,
     .source = from_root_for_me,
     .call = [](Communicator& group,
                const Buffers& b) { group.scatter(b.input_of(blocks_at_root(group)), b.output_of(1), 0); }},
    {.name = "reduce_scatter",
     .input = kAllEverywhere,
     .output = kOneEverywhere,
     .source = from_all_for_me,
     .call =
         [](Communicator& group, const Buffers& b) {
           group.reduce_scatter(b.input_of(static_cast<std::size_t>(group.size())), b.output_of(1));
         }},
    {.name = "all_to_all",
     .input = kAllEverywhere,
     .output = kAllEverywhere,
     .source = from_each_for_me,
     .call =
         [](Communicator& group, const Buffers& b) {
           const auto ranks = static_cast<std::size_t>(group.size());
           group.all_to_all(b.input_of(ranks), b.output_of(ranks));
         }},
    {.name = "scan",
     .input = kOneEverywhere,
     .output = kOneEverywhere,
     .is_in_place = true,
     .leaves_early = true,
     .source = from_those_before,
     .call = [](Communicator& group,
                const Buffers& b) { group.scan(std::span<const float>(b.output_of(1)), b.output_of(1)); },
     .is_in_c10d = false},
    {.name = "send",
     .input = kAllAtRoot,
     .output = kOneElsewhere,
     .leaves_early = true,
     .source = from_root_for_me,
     .call = send_from_root},
    {.name = "sendrecv",
     .input = kOneEverywhere,
     .output = kOneEverywhere,
     .leaves_early = true,
     .source = from_the_one_before,
     .call = send_around},
};

std::size_t blocks_of(const Side& side, int rank, int ranks) {
  switch (rank == 0 ? side.root : side.others) {
    case DataOp::Blocks::kNone:
      return 0;
    case DataOp::Blocks::kOne:
      return 1;
    case DataOp::Blocks::kOnePerRank:
      return static_cast<std::size_t>(ranks);
  }
  throw std::logic_error("unknown number of blocks");
}

/// What a rank puts at place 0 of a block in one iteration; place i has i & 15 more. Small integers, whose sums are
/// exact, and of which no other block or recent iteration has the same.
float first_value(int rank, int block, int iteration) {
  return static_cast<float>(1 + ((iteration + 1024) & 7) + 8 * (rank + 37 * block));
}

}  // namespace

std::size_t DataOp::inputs_of(int rank, int ranks) const {
  return blocks_of(input, rank, ranks);
}
std::size_t DataOp::outputs_of(int rank, int ranks) const {
  return blocks_of(output, rank, ranks);
}

std::span<const DataOp> data_ops() {
  return kDataOps;
}

const DataOp& data_op(const std::string& name) {
  for (const DataOp& op : kDataOps)
    if (op.name == name) return op;
  throw std::out_of_range("no collective " + name);
}

TimesOf times_of(const DataOp& op, int ranks) {
  return op.leaves_early && ranks > usable_cpus() ? &whole_times : &collective_times;
}

// The loops count in int, as those of mpi_ranks.c do: in size_t no compiler makes vectors of them, and among more ranks
// than CPUs the others' checks are part of what is measured.

void VerifiedBuffers::rewrite(int iteration) const {
  const std::size_t blocks = op_.inputs_of(rank_, ranks_);
  for (std::size_t block = 0; block < blocks; ++block) {
    float* const data = buffers_.input + block * buffers_.count;
    const float first = first_value(rank_, static_cast<int>(block), iteration);
    const int count = static_cast<int>(buffers_.count);
    for (int i = 0; i < count; ++i) data[i] = first + static_cast<float>(i & 15);
  }
}

void VerifiedBuffers::check(int iteration) const {
  const std::size_t blocks = op_.outputs_of(rank_, ranks_);
  std::size_t wrong = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    const float* const data = buffers_.output + block * buffers_.count;
    const Source source = op_.source(rank_, ranks_, static_cast<int>(block));
    const auto step = static_cast<float>(source.last - source.first + 1);
    float first = 0;
    for (int rank = source.first; rank <= source.last; ++rank) first += first_value(rank, source.block, iteration);
    const int count = static_cast<int>(buffers_.count);
    int wrong_here = 0;
    for (int i = 0; i < count; ++i) wrong_here += data[i] != first + step * static_cast<float>(i & 15) ? 1 : 0;
    wrong += static_cast<std::size_t>(wrong_here);
  }
  if (wrong != 0)
    throw std::runtime_error(fmt::format("{}: {} of {} elements are wrong", op_.name, wrong, blocks * buffers_.count));
}

}  // namespace retinue::bench
