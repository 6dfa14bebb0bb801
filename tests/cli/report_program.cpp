// Ranks of which a report can be made. What they do is said on the command line, once for each group of ranks.
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "retinue/collective/communicator.h"
#include "retinue/launch/spawn.h"
#include "retinue/progress/step_timer.h"
#include "retinue/progress/summary_writer.h"

namespace {

void train(retinue::RankContext& context) {
  retinue::Communicator group(context.world());
  retinue::StepTimer timer;
  std::unique_ptr<retinue::SummaryWriter> writer;
  if (context.rank() == 0) writer = std::make_unique<retinue::SummaryWriter>("logs");
  for (int step = 0; step < 3000; ++step) {
    if (context.rank() == 1 && step % 1000 == 999) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    group.barrier();
    timer.step();
    if (!writer) continue;
    writer->add_scalar("loss/<b>train</b>", 1.0 / (step + 1), step);
    if (step % 100 == 0) writer->add_scalar("odd", step == 500 ? std::nan("") : step, step);
  }
  if (writer) writer->add_scalar("one", 5, 7);
}

void work(retinue::RankContext& context, const std::string& how) {
  if (how == "idle") return;
  if (how == "train") return train(context);
  if (how == "twice") {
    for (int i = 0; i < 2; ++i) retinue::Communicator(context.world()).barrier();
    return;
  }
  retinue::Communicator group(context.world());
  std::vector<float> values(1000, 1);
  for (int i = 0; i < 20; ++i) group.all_reduce(std::span(values));
  if (how != "late") {
    const int other = 1 - group.rank();
    std::vector<float> others(values.size());
    group.sendrecv(std::span(values), other, std::span(others), other);
  }
  if (how == "die") {
    if (group.rank() == 0) group.barrier();
    // Rank 1 dies in that one, and rank 0 in the next, which nobody else comes to.
    const retinue::Request begun = group.start(retinue::CollectiveCall::barrier());
    retinue::Communicator(context.world()).barrier();
    if (group.rank() == 1) raise(SIGKILL);
    begun.wait();
  }
  if (how == "late" && group.rank() != 0) {
    // Rank 0 waits for both; rank 2 is why.
    std::this_thread::sleep_for(std::chrono::milliseconds(group.rank() == 2 ? 300 : 10'000));
    throw std::runtime_error("too late");
  }
  if (how == "throw" && group.rank() == 1) throw std::runtime_error("bad </script> of <b>rank 1</b>");
  group.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  std::vector<std::unique_ptr<retinue::ProcessContext>> contexts;
  for (int i = 1; i < argc; ++i) {
    const std::string how = argv[i];
    std::map<int, std::tuple<std::string>> ranks = {{0, {how}}, {1, {how}}};
    if (how == "late") ranks[2] = {how};
    contexts.push_back(std::make_unique<retinue::ProcessContext>(retinue::start_processes<work>({.name = how}, ranks)));
  }
  int failed = 0;
  for (const auto& context : contexts) {
    try {
      context->join();
    } catch (const retinue::ProcessException&) {
      ++failed;
    }
  }
  return failed;
}
