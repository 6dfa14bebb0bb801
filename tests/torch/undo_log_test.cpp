// What ranks make of a step of an optimizer that one of them did not complete.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <vector>

#include "support/ranks.h"
#include "torch/optim/optimizer_slices.h"

namespace retinue {
namespace {

using test::run_ranks;

/// A rank that was lost had made all its changes, and another one still makes its own.
TEST(UndoLogs, WaitForRanksThatStillWrite) {
  run_ranks(3, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members);
    const std::vector<at::Tensor> parameters = {torch::zeros({96})};
    share_parameters(parameters, group);
    const FlatLayout layout(parameters, 3);
    UndoLog log(parameters, layout, group);
    const ElementRange own = slice_of(layout, parameters, members.rank, 3).front();
    log.begin_step();
    barrier(group);
    // Long enough that the others look at a step that goes on.
    if (members.rank == 2) usleep(100'000);
    log.keep(own, elements_of(parameters[0], own.begin, own.end));
    elements_of(parameters[0], own.begin, own.end).fill_(1);
    log.end_step();
    if (members.rank != 1) log.undo({1});
    if (members.rank == 0) {
      EXPECT_TRUE(parameters[0].eq(1).all().item<bool>());
    }
    barrier(group);
  });
}

/// Another rank waited no longer, and undid the step before this one had made its changes.
TEST(UndoLogs, UndoWhatOneRankUndid) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members);
    const std::vector<at::Tensor> parameters = {torch::zeros({64})};
    share_parameters(parameters, group);
    const FlatLayout layout(parameters, 2);
    UndoLog log(parameters, layout, group);
    const ElementRange own = slice_of(layout, parameters, members.rank, 2).front();
    const auto change = [&] {
      log.keep(own, elements_of(parameters[0], own.begin, own.end));
      elements_of(parameters[0], own.begin, own.end).fill_(1);
      log.end_step();
    };
    log.begin_step();
    if (members.rank == 0) {
      change();
      log.undo({1});
    }
    barrier(group);
    if (members.rank == 1) {
      change();
      log.undo({});
    }
    barrier(group);
    EXPECT_TRUE(parameters[0].eq(0).all().item<bool>());
  });
}

}  // namespace
}  // namespace retinue
