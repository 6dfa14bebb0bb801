// Rank 1 takes memory until the kernel kills it, in the memory cgroup whose folder is the first argument. Second
// argument: "program" enters it before anything else, with all ranks to come; "rank" only rank 1 does. With "shared"
// the program enters it, and takes job memory until that is refused.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "retinue/ipc/shared_block.h"
#include "retinue/launch/spawn.h"

namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr int kMostPieces = 1024;  // Far beyond the test's limit, and harmless where that does not hold.

void enter(const std::string& cgroup) {
  std::ofstream(cgroup + "/cgroup.procs") << getpid() << std::flush;
}

void take_memory(retinue::RankContext& context, const std::string& cgroup) {
  if (context.rank() != 1) {
    for (;;) pause();
  }
  if (!cgroup.empty()) enter(cgroup);
  std::vector<std::unique_ptr<char[]>> pieces;
  for (int i = 0; i < kMostPieces; ++i) {
    pieces.emplace_back(new char[kPieceBytes]);
    std::memset(pieces.back().get(), i, kPieceBytes);
  }
}

int take_job_memory() {
  std::vector<retinue::SharedBlock> pieces;
  try {
    for (int i = 0; i < kMostPieces; ++i) {
      pieces.push_back(retinue::SharedBlock::allocate(kPieceBytes));
      std::memset(pieces.back().data(), i, kPieceBytes);
    }
  } catch (const retinue::SharedMemoryExhausted& error) {
    std::printf("refused after %zu MiB: %s\n", pieces.size(), error.what());
    return 0;
  }
  return 3;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string cgroup = argc > 1 ? argv[1] : "";
  const std::string who = argc > 2 ? argv[2] : "";
  const bool is_whole = who == "program";
  if (who != "rank") enter(cgroup);
  retinue::Runtime runtime(argc, argv, {.job_memory = kMostPieces * 2 * kPieceBytes});
  if (who == "shared") return take_job_memory();
  try {
    retinue::spawn<take_memory>({.nprocs = 2}, is_whole ? std::string() : cgroup);
  } catch (const retinue::ProcessExitedException& error) {
    std::printf("rank %d out_of_memory %d: %s\n", error.rank(), error.outcome().out_of_memory ? 1 : 0, error.what());
    return 0;
  }
  return 3;
}
