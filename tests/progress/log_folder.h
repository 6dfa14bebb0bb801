#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/shell_run.h"
#include "support/paths.h"

namespace retinue::test {

/// A folder that is removed with this.
class LogFolder {
 public:
  LogFolder() {
    std::string name = testing::TempDir() + "log_XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~LogFolder() { std::filesystem::remove_all(path_); }
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// In the order of their names, which begin with the time.
  std::vector<std::string> event_files(const std::string& subfolder = ".") const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator((path_ / subfolder).lexically_normal()))
      if (entry.path().filename().string().starts_with("events.out.tfevents.")) files.push_back(entry.path());
    std::ranges::sort(files);
    return files;
  }
  std::string text_of(const std::string& name) const {
    std::ifstream stream(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

 private:
  std::filesystem::path path_;
};

inline std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
  return lines;
}

/// What the script prints, which must succeed.
inline std::vector<nlohmann::json> run_script(const std::string& python, const std::string& name,
                                              const std::string& arguments) {
  const auto run = shell_run(python + " " RETINUE_SOURCE_DIR "/tests/progress/" + name + " " + arguments);
  EXPECT_EQ(run.status, 0) << run.output;
  return json_lines(run.output);
}

/// The events in a file, as a reader that knows nothing of ours finds them; behind them, what is left.
inline std::vector<nlohmann::json> events_in(const std::string& file) {
  return run_script("python3", "read_events.py", file);
}

}  // namespace retinue::test
