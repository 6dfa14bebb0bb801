#include <fmt/format.h>
#include <torch/torch.h>

#include "retinue/torch.h"

namespace {

void sum_ranks(retinue::RankContext& context, float expected) {
  const retinue::ProcessGroup group = retinue::init_process_group(context);
  const torch::Tensor tensor = torch::full({5}, context.rank() + 1.0f);
  retinue::all_reduce(tensor, group);
  if (!torch::equal(tensor, torch::full({5}, expected))) throw retinue::Error("all_reduce gave a wrong sum");
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  retinue::spawn<sum_ranks>({.nprocs = 2}, 3.0f);
  fmt::print("consumer: {}\n", "ok");  // LibTorch's headers of fmt have no library.
}
