#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "launch/spawn/new_request.h"
#include "launch/spawn/start.h"
#include "retinue/base/error.h"
#include "retinue/launch/spawn.h"

namespace retinue {
namespace {

constexpr std::size_t kMostShown = 16;

std::string text_of(const std::set<int>& keys) {
  std::vector<std::string> shown;
  for (const int key : keys) {
    if (shown.size() == kMostShown) break;
    shown.push_back(std::to_string(key));
  }
  if (keys.size() > kMostShown) shown.push_back(fmt::format("... {}", *keys.rbegin()));
  return fmt::format("{{{}}}", fmt::join(shown, ", "));
}

}  // namespace

namespace detail {

void check_local_ranks(const char* what, const std::set<int>& keys, std::size_t nprocs) {
  if (nprocs == 0) throw UsageError("start_processes: args is empty, so no process would be started");
  std::set<int> expected;
  for (std::size_t rank = 0; rank < nprocs; ++rank) expected.insert(static_cast<int>(rank));
  if (keys == expected) return;
  throw UsageError(
      fmt::format("start_processes: {} must have an entry for each of the {} local ranks and no other: "
                  "expected {}, actual {}",
                  what, nprocs, text_of(expected), text_of(keys)));
}

StartOptions with_environments(StartOptions options, const EnvironmentByRank& envs, std::size_t nprocs) {
  check_local_ranks("envs", keys_of(envs), nprocs);
  for (const auto& [rank, variables] : envs) {
    auto merged = variables;
    merged.merge(options.environment[rank]);
    options.environment[rank] = std::move(merged);
  }
  return options;
}

}  // namespace detail

ProcessContext start_processes(const StartOptions& options, const std::vector<Program>& programs) {
  std::vector<std::map<std::string, std::string>> environments;
  for (const Program& program : programs) environments.push_back(program.environment);
  StartRequest request = new_request(options, StartKind::kProgram, programs.size(), environments);
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    const Program& program = programs[rank];
    request.ranks[rank].has_no_input = program.input == Program::Input::kNone;
    Command& command = request.ranks[rank].command;
    command = {program.file, {program.file}};
    command.arguments.insert(command.arguments.end(), program.arguments.begin(), program.arguments.end());
  }
  return ProcessContext(submit(request, options));
}

ProcessContext start_processes(const StartOptions& options, const std::string& file,
                               const std::map<int, Arguments>& args) {
  detail::check_local_ranks("args", detail::keys_of(args), args.size());
  std::vector<Program> programs;
  for (const auto& [rank, arguments] : args) programs.push_back({file, arguments.texts(), {}});
  return start_processes(options, programs);
}

ProcessContext start_processes(const StartOptions& options, const std::string& file,
                               const std::map<int, Arguments>& args, const EnvironmentByRank& envs) {
  detail::check_local_ranks("args", detail::keys_of(args), args.size());
  return start_processes(detail::with_environments(options, envs, args.size()), file, args);
}

}  // namespace retinue
