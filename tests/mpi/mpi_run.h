#pragma once

#include <string>
#include <vector>

#include "support/paths.h"
#include "support/started_program.h"

namespace retinue::test {

/// `ranks` ranks of a program in the build's bin folder, by mpirun.
class MpiRun : public StartedProgram {
 public:
  MpiRun(int ranks, const std::string& program, const std::vector<std::string>& arguments = {})
      : StartedProgram(RETINUE_SOURCE_DIR "/tests/mpi/run", words(ranks, program, arguments)) {}

 private:
  static std::vector<std::string> words(int ranks, const std::string& program,
                                        const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {RETINUE_MPIEXEC, "-n", std::to_string(ranks), RETINUE_BIN_DIR "/" + program};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
  }
};

}  // namespace retinue::test
