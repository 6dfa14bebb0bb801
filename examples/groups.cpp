// Groups of some ranks, one rank that prepares for all, and ranks of several machines.
#include <fmt/format.h>
#include <torch/torch.h>

#include <cereal/types/string.hpp>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>

#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"
#include "retinue/torch/groups.h"
#include "retinue/torch/run.h"

namespace {

struct Config {
  std::string cache;  ///< A file that does not exist yet.

  template <class Archive>
  void serialize(Archive& archive) {
    archive(cache);
  }
};

// [zero_first]
/// Rank 0 downloads; the others wait, and then find the file.
void prepare(const retinue::ProcessGroup& group, const std::string& cache) {
  const retinue::ZeroFirst guard(group);
  if (guard.is_first()) std::ofstream(cache) << 42;
}
// [/zero_first]

// [function]
/// The same, with what all read; where rank 0 fails, all throw its error.
int read(const retinue::ProcessGroup& group, const std::string& cache) {
  return retinue::zero_first(group, [&] {
    int number = 0;
    if (!(std::ifstream(cache) >> number)) throw std::runtime_error("nothing in " + cache);
    return number;
  });
}
// [/function]

// [groups]
/// Sums within rows and columns of a grid of ranks that is `width` wide.
void sum_grid(const retinue::ProcessGroup& world, int width, at::Tensor& row_sum, at::Tensor& column_sum) {
  const retinue::ProcessGroup row = retinue::split_group(world, {.color = world->getRank() / width});
  const retinue::ProcessGroup column = retinue::split_group(world, {.color = world->getRank() % width});
  retinue::all_reduce(row_sum, row);
  retinue::all_reduce(column_sum, column);

  const retinue::ProcessGroup corner = retinue::new_group({0, 1, width}, world);
  retinue::barrier(corner);                          // nothing in the other ranks, whose group is null
  if (corner) retinue::all_reduce(row_sum, corner);  // which would be an error there
}
// [/groups]

// [run]
/// What each rank does, on whichever machine it is.
void train(const retinue::ProcessGroup& world, const Config& config) {
  prepare(world, config.cache);
  const int number = read(world, config.cache);
  at::Tensor row = torch::full({1}, world->getRank() + number, torch::kInt);
  at::Tensor column = row.clone();
  sum_grid(world, 2, row, column);
  fmt::print("rank {}: row {}, column {}\n", world->getRank(), row.item<int>(), column.item<int>());
  std::fflush(stdout);
}

void start_ranks(const Config& config) {
  retinue::RunOptions options{.init_method = "env://", .shard_id = 0, .num_shards = 1};
  retinue::spawn<retinue::run<train>>({.nprocs = 4}, options, config);
}
// [/run]

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  if (argc != 2) {
    fmt::print(stderr, "usage: groups FILE_TO_MAKE\n");
    return 2;
  }
  start_ranks({.cache = argv[1]});
}
