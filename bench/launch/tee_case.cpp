#include <fmt/format.h>

#include <filesystem>

#include "bench.h"
#include "started.h"

/// Ranks that write a million short lines each, to their files and to one console, which is read here.
namespace retinue::bench {
namespace {

constexpr std::size_t kLines = 1'000'000;

/// A folder for one run's logs.
class LogFolder {
 public:
  LogFolder() : path_((std::filesystem::temp_directory_path() / "retinue-bench-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) throw Unavailable("cannot make the folder " + path_);
  }
  ~LogFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Microseconds, if all lines came.
double tee_us(const std::vector<std::string>& launcher, int ranks) {
  const LogFolder folder;
  std::vector<std::string> arguments = launcher;
  const std::string lines = std::to_string(kLines);
  for (const std::string& argument :
       {std::string("--nproc-per-node"), std::to_string(ranks), std::string("--tee"), std::string("3"),
        std::string("--log-dir"), folder.path(), std::string("--no-python"), std::string("seq"), lines})
    arguments.push_back(argument);
  const Drained drained = drain_program(arguments);
  const std::size_t wanted = kLines * static_cast<std::size_t>(ranks);
  if (drained.lines != wanted)
    throw Unavailable(fmt::format("{} of {} lines came to the console", drained.lines, wanted));
  return drained.us;
}

Contender tee(std::string name, int ranks, std::function<std::vector<std::string>()> launcher) {
  return {std::move(name),
          [ranks, launcher = std::move(launcher)] { return std::vector<double>{tee_us(launcher(), ranks)}; }};
}

}  // namespace

std::vector<Row> run_tee(const Settings& settings) {
  std::vector<Contender> contenders = {tee("lines", settings.ranks, [] {
    return std::vector<std::string>{retinue_command(), "run"};
  })};
  if (settings.peers)
    contenders.push_back(tee("torchrun", settings.ranks, [] {
      return std::vector<std::string>{torch_python(), "-m", "torch.distributed.run"};
    }));
  const std::vector<Figures> figures = run_interleaved(contenders, std::min(settings.rounds, 3));
  std::vector<std::pair<std::string, Figures>> peers;
  for (std::size_t i = 1; i < contenders.size(); ++i) peers.emplace_back(contenders[i].name, figures[i]);
  const Row head = {
      .case_name = "tee", .variant = "lines", .ranks = settings.ranks, .bytes = kLines};  // Lines of each rank.
  return rows_of(head, figures[0], peers);
}

}  // namespace retinue::bench
