#include "launch/spawn/new_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "ipc/memory/job_layout.h"
#include "launch/placement/place_ranks.h"
#include "os/machine/cpus.h"
#include "os/process/confinement.h"
#include "process/failure/error_file.h"
#include "retinue/base/error.h"
#include "retinue/launch/runtime.h"

namespace retinue {
namespace {

constexpr const char* kOpenMpThreads = "OMP_NUM_THREADS";

// Longer waits would leave the clock's range.
constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 365);

std::int64_t wait_ms(const char* option, std::chrono::milliseconds wait) {
  if (wait.count() < 0) throw UsageError(fmt::format("{} is {} ms: it must be 0 or longer", option, wait.count()));
  return std::min(wait, kLongestWait).count();
}

void check_count(std::size_t count) {
  if (count == 0 || count > kMaxProcesses - 2)
    throw UsageError(fmt::format("starting {} ranks: it must be 1 to {}", count, kMaxProcesses - 2));
}

void check_variables(const std::map<std::string, std::string>& variables, std::size_t rank) {
  for (const auto& [name, value] : variables)
    if (name.empty() || name.find('=') != std::string::npos || name.find('\0') != std::string::npos ||
        value.find('\0') != std::string::npos)
      throw UsageError(
          fmt::format("environment of rank {}: '{}' cannot be a variable: a name has at least one "
                      "character and no '=', and neither name nor value has a zero byte",
                      rank, name));
}

void set_environment(StartRequest& request, const StartOptions& options,
                     const std::vector<std::map<std::string, std::string>>& environments) {
  for (const auto& [rank, variables] : options.environment)
    if (rank < 0 || static_cast<std::size_t>(rank) >= request.ranks.size())
      throw UsageError(fmt::format("environment: there is no rank {}, only 0 to {}", rank, request.ranks.size() - 1));
  for (std::size_t rank = 0; rank < request.ranks.size(); ++rank) {
    auto& variables = request.ranks[rank].environment;
    if (rank < environments.size()) variables = environments[rank];
    if (const auto more = options.environment.find(static_cast<int>(rank)); more != options.environment.end())
      variables.insert(more->second.begin(), more->second.end());
    check_variables(variables, rank);
  }
}

void set_directory(StartRequest& request, const std::string& directory) {
  if (directory.empty()) return;
  std::error_code error;
  const bool is_directory = std::filesystem::is_directory(directory, error);
  if (!is_directory)
    throw UsageError(fmt::format("directory '{}': {}: the ranks cannot start there", directory,
                                 error ? error.message() : "is not a directory"));
  request.directory = directory;
}

void set_places(StartRequest& request, const StartOptions& options) {
  const int nprocs = static_cast<int>(request.ranks.size());
  const std::vector<RankPlace> places =
      places_among(request.attributes.cpus, nprocs, options.cpu_affinity, options.threads_per_rank);
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    request.ranks[rank].threads = places[rank].threads;
    if (options.cpu_affinity.kind() != CpuAffinity::Kind::kNone) request.ranks[rank].cpus = places[rank].cpus;
  }
  const std::vector<int>& nodes = options.memory_nodes;
  if (nodes.empty()) return;
  if (nodes.size() != 1 && nodes.size() != request.ranks.size())
    throw UsageError(fmt::format("memory_nodes: {} nodes for {} ranks: give one for all ranks, or one for each",
                                 nodes.size(), nprocs));
  const std::vector<int> allowed = allowed_memory_nodes();
  for (std::size_t rank = 0; rank < request.ranks.size(); ++rank) {
    const int node = nodes[nodes.size() == 1 ? 0 : rank];
    if (std::find(allowed.begin(), allowed.end(), node) == allowed.end())
      throw UsageError(
          fmt::format("memory_nodes: rank {} is to use memory of node {}, but this process may only use nodes {}", rank,
                      node, cpu_list_text(allowed)));
    // All memory of a machine with one node comes from it, also where a container forbids set_mempolicy.
    if (allowed.size() > 1) request.ranks[rank].memory_node = node;
  }
}

/// A rank's error file is for its own failure: what it starts may fail without it.
void keep_own_error_file(StartRequest& request) {
  const JobMemory& memory = *Runtime::current().memory();
  if (process_slot(memory, memory.own_slot()).context == ProcessSlot::kNoContext) return;
  const std::string prefix = std::string(kErrorFileVariable) + "=";
  std::erase_if(request.attributes.environment,
                [&](const std::string& variable) { return variable.starts_with(prefix); });
}

/// What ranks execute reads OMP_NUM_THREADS; forked ranks are told by call.
void set_threads(StartRequest& request, int threads_per_rank) {
  const bool is_for_programs = request.kind == StartKind::kProgram && std::getenv(kOpenMpThreads) == nullptr;
  if (threads_per_rank == 0 && !is_for_programs) return;
  for (RankRequest& rank : request.ranks) rank.environment.emplace(kOpenMpThreads, std::to_string(rank.threads));
}

}  // namespace

void refuse_other_confinement(const ProcessStatus& status) {
  const Confinement now = Confinement::of_this_thread(status);
  const std::string changes = now.changes_since(Runtime::current().memory()->header().confinement);
  if (!changes.empty())
    throw UsageError(
        fmt::format("this process has another {} than the program had when it made its Runtime, and its ranks would "
                    "not have it: make the change before the Runtime, or start a function by StartMethod::kFork",
                    changes));
  if (!status.is_known()) throw SystemError("reading /proc/thread-self/status: starting ranks needs /proc", ENOENT);
}

StartRequest new_request(const StartOptions& options, StartKind kind, std::size_t nprocs,
                         const std::vector<std::map<std::string, std::string>>& environments) {
  check_count(nprocs);
  if (!Runtime::current().memory()->is_of_this_process())
    throw UsageError(
        "starting ranks: this process was forked from the process that made the Runtime, for example by fork() or "
        "daemon(): make the Runtime after the fork, or start ranks in the process that made it");
  if (options.threads_per_rank < 0)
    throw UsageError(fmt::format("threads_per_rank is {}: it must be at least 1, or 0 for the ranks' share of the CPUs",
                                 options.threads_per_rank));
  StartRequest request;
  request.kind = kind;
  request.name = options.name;
  request.terminate_wait_ms = wait_ms("stop.terminate_wait", options.stop.terminate_wait);
  request.kill_wait_ms = wait_ms("stop.kill_wait", options.stop.kill_wait);
  request.exit_grace_ms = wait_ms("exit_grace", options.exit_grace);
  request.daemon = options.daemon ? 1 : 0;
  const ProcessStatus status;
  if (kind == StartKind::kProgram) refuse_other_confinement(status);
  request.attributes = ProcessAttributes::of_this_thread(status);
  keep_own_error_file(request);
  request.ranks.resize(nprocs);
  set_environment(request, options, environments);
  set_directory(request, options.directory);
  set_places(request, options);
  set_threads(request, options.threads_per_rank);
  return request;
}

}  // namespace retinue
