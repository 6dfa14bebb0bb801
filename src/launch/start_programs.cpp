#include <map>
#include <string>
#include <vector>

#include "launch/new_request.h"
#include "launch/start.h"
#include "retinue/launch/spawn.h"

namespace retinue {

ProcessContext start_processes(const StartOptions& options, const std::vector<Program>& programs) {
  std::vector<std::map<std::string, std::string>> environments;
  for (const Program& program : programs) environments.push_back(program.environment);
  StartRequest request = new_request(options, StartKind::kProgram, programs.size(), environments);
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    const Program& program = programs[rank];
    Command& command = request.ranks[rank].command;
    command = {program.file, {program.file}};
    command.arguments.insert(command.arguments.end(), program.arguments.begin(), program.arguments.end());
  }
  return ProcessContext(submit(request));
}

}  // namespace retinue
