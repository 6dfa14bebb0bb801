#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench.h"
#include "samples.h"

namespace retinue::bench {

/// The interpreter that has the peers' packages; empty if there is none.
std::string peer_python();

/// What a peer's processes run.
struct PeerProgram {
  std::string name;                           ///< In messages.
  std::vector<std::string> arguments;         ///< The program's path first.
  std::string missing = "";                   ///< Why it cannot be started; empty: it can.
  std::vector<std::string> environment = {};  ///< "NAME=value", instead of the caller's.
  std::chrono::seconds answer_limit = std::chrono::minutes(3);
  std::string farewell = "";  ///< A line to end by, for programs that don't learn of the end of their input.
};

/// A script of bench/peers, under the interpreter that has PyTorch.
PeerProgram torch_peer(const std::string& script);
/// The same under the interpreter of .retinue/venv-peer-NAME, where bench/peers/install put the package NAME.
PeerProgram package_peer(const std::string& package, const std::string& script);

/// A peer system's processes: copies of a program that stay alive over all rounds, read a command as a line and answer
/// with a line of JSON. Between commands they are blocked, so that they cost nothing while others are measured.
class Peer {
 public:
  /// Nothing is started before the first command.
  Peer(PeerProgram program, int processes) : program_(std::move(program)), processes_(processes) {}
  Peer(const std::string& script, int processes) : Peer(torch_peer(script), processes) {}

  /// Ends the processes. Blocking: a few seconds at most.
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// Sends a command to all processes and returns their answers. Blocking: the program's answer_limit for each.
  /// Errors: Unavailable, the same again for later commands.
  /// After an error: the processes are ended, so that they are not at work while others are measured.
  std::vector<nlohmann::json> ask(const std::string& command);

 private:
  struct Process {
    pid_t pid;
    int channel;
    std::string unread;
  };

  void start();
  void start_process(int rank);
  nlohmann::json answer_of(Process& process);
  void end();
  [[noreturn]] void fail(const std::string& reason);

  PeerProgram program_;
  int processes_;
  std::vector<Process> running_;
  std::filesystem::path folder_;  ///< For what the processes need to find each other.
  std::string failure_;
};

/// What each rank of a peer measured of a command.
Spans spans_of(const std::vector<nlohmann::json>& answers);
/// And what it spent, where it tells: {"cpu_ns", "page_faults", "memory_bytes"}.
std::vector<Usage> usage_of(const std::vector<nlohmann::json>& answers);

/// A peer as contender: a round is one command, its samples what `times_of` makes of it.
Contender peer_collective(std::string name, std::shared_ptr<Peer> peer, std::string command, TimesOf times_of);

/// What the ranks that a peer's only process started itself measured of a command: {"ranks": [{"enter", "exit"}, ...]}.
Spans spans_of_ranks(Peer& peer, const std::string& command);

}  // namespace retinue::bench
