#include "support/started_program.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>

#include "support/paths.h"

namespace retinue::test {

StartedProgram::StartedProgram(const std::string& program, std::vector<std::string> arguments) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  std::string path = program.starts_with('/') ? program : std::string(RETINUE_BIN_DIR) + "/" + program;
  std::vector<char*> argv = {path.data()};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(ends[1], 1);
    execv(path.c_str(), argv.data());
    _exit(126);
  }
  close(ends[1]);
  output_ = fdopen(ends[0], "r");
}

StartedProgram::~StartedProgram() {
  fclose(output_);
}

std::string StartedProgram::read_line() {
  char line[4096];
  return fgets(line, sizeof line, output_) == nullptr ? "" : line;
}

std::string StartedProgram::read_all() {
  std::string text;
  for (std::string line = read_line(); !line.empty(); line = read_line()) text += line;
  return text;
}

int StartedProgram::wait_for_all() const {
  int program_status = -1;
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR;)
    if (pid == pid_) program_status = status;
  return program_status;
}

}  // namespace retinue::test
