#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/paths.h"

namespace retinue::test {

struct ShellResult {
  int status;          ///< As wait() gives it.
  std::string output;  ///< Standard output and error together.
};

/// Runs a shell command in which $RETINUE is the command under test.
inline ShellResult shell_run(const std::string& command) {
  setenv("RETINUE", RETINUE_BIN_DIR "/retinue", 1);
  FILE* pipe = popen(("exec 2>&1; " + command).c_str(), "r");
  std::string output;
  char buffer[4096];
  while (std::size_t bytes = fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, bytes);
  return {pclose(pipe), output};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace retinue::test
