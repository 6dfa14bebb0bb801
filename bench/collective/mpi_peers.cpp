#include "collective/mpi_peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "build_facts.h"

namespace retinue::bench {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

/// More ranks than CPUs that spin may take minutes for what others do in microseconds.
constexpr std::chrono::seconds kAnswerLimit(20);

enum class Where : std::uint8_t {
  kEverywhere,
  kFits,     ///< A CPU for each rank.
  kCrowded,  ///< More ranks than CPUs.
};

struct Setting {
  const char* name;
  const char* mpi;  ///< In .retinue/venv-peer-MPI.
  Where where;
  Words flags;
  Words environment = {};
  Words ops = {};  ///< Those that it changes; empty: all.
};

const Words kOpenMpi = {"mpirun", "--allow-run-as-root"};
const Words kOpenMpiCrowded = {
    "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"};
const Words kMpich = {"mpiexec.hydra"};
// Intel's wheel works without libfabric, which its package wants and PyPI does not have, over shared memory alone.
const Words kImpi = {"mpiexec.hydra", "-bootstrap", "fork"};
const Words kImpiMemory = {"I_MPI_FABRICS=shm"};

const Words kSmOps = {"barrier", "all_reduce", "broadcast", "reduce"};  // All that coll/sm and release_gather have.

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const std::vector<Setting>& settings() {
  static const Words sm = {"--mca", "coll_sm_priority", "90"};
  static const Words release_gather = {
      "MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM=release_gather",
      "MPIR_CVAR_BARRIER_POSIX_INTRA_ALGORITHM=release_gather",
      "MPIR_CVAR_BCAST_POSIX_INTRA_ALGORITHM=release_gather",
      "MPIR_CVAR_REDUCE_POSIX_INTRA_ALGORITHM=release_gather",
  };
  // A rank that finds nothing to do sleeps for a microsecond, so that those it waits for get its CPU.
  static const Words throttled = {"MPIR_CVAR_CH4_PROGRESS_THROTTLE=1",
                                  "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT=1"};
  static const std::vector<Setting> all = {
      {"openmpi", "openmpi", Where::kFits, kOpenMpi},
      {"openmpi-sm", "openmpi", Where::kFits, kOpenMpi + sm, {}, kSmOps},
      {"openmpi", "openmpi", Where::kCrowded, kOpenMpiCrowded},
      {"openmpi-sm", "openmpi", Where::kCrowded, kOpenMpiCrowded + sm, {}, kSmOps},
      {"mpich", "mpich", Where::kFits, kMpich},
      {"mpich-rg", "mpich", Where::kFits, kMpich + Words{"-bind-to", "core"}, release_gather, kSmOps},
      {"mpich", "mpich", Where::kCrowded, kMpich, throttled},
      {"mpich-rg", "mpich", Where::kCrowded, kMpich, throttled + release_gather, kSmOps},
      {"impi", "impi", Where::kEverywhere, kImpi, kImpiMemory},
      {"impi-yield", "impi", Where::kCrowded, kImpi, kImpiMemory + Words{"I_MPI_THREAD_YIELD=3"}},
      {"impi-wait", "impi", Where::kCrowded, kImpi, kImpiMemory + Words{"I_MPI_WAIT_MODE=1"}},
  };
  return all;
}

PeerProgram program_of(const Setting& setting, int ranks) {
  const fs::path folder = fs::path(source_folder()) / ".retinue" / (std::string("venv-peer-") + setting.mpi);
  const fs::path program = folder / "bin" / "mpi_ranks";
  PeerProgram peer = {.name = setting.name, .arguments = {}};
  if (!fs::exists(program)) {
    peer.missing = fmt::format("no {}: run make peers", setting.mpi);
    return peer;
  }
  // setpriv ends mpirun with this program, however that ends; Open MPI's wouldn't by its closed input.
  peer.arguments = {"/usr/bin/setpriv", "--pdeathsig", "TERM", (folder / "bin" / setting.flags.front()).string()};
  peer.arguments.insert(peer.arguments.end(), setting.flags.begin() + 1, setting.flags.end());
  for (const std::string& word : {std::string("-n"), std::to_string(ranks), program.string()})
    peer.arguments.push_back(word);
  peer.environment = setting.environment + Words{"I_MPI_ROOT=" + folder.string()};
  peer.answer_limit = kAnswerLimit;
  peer.farewell = "end";
  return peer;
}

}  // namespace

std::vector<NamedPeer> mpi_peers(const std::string& op, int ranks) {
  const Where here = ranks > usable_cpus() ? Where::kCrowded : Where::kFits;
  std::vector<NamedPeer> peers;
  for (const Setting& setting : settings()) {
    const bool is_for_op =
        setting.ops.empty() || std::find(setting.ops.begin(), setting.ops.end(), op) != setting.ops.end();
    if (is_for_op && (setting.where == Where::kEverywhere || setting.where == here))
      peers.push_back({setting.name, std::make_shared<Peer>(program_of(setting, ranks), 1)});
  }
  return peers;
}

}  // namespace retinue::bench
