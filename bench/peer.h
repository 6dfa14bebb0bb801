#pragma once

#include <sys/types.h>

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

/// A peer system's processes: copies of a script of bench/peers that stay alive over all rounds, read a command as a
/// line and answer with a line of JSON. Between commands they are blocked, so that they cost nothing while others are
/// measured.
class Peer {
 public:
  /// Nothing is started before the first command.
  Peer(std::string script, int processes) : script_(std::move(script)), processes_(processes) {}

  /// Ends the processes. Blocking: a few seconds at most.
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// Sends a command to all processes and returns their answers. Blocking: three minutes at most for each.
  /// Errors: Unavailable, the same again for later commands.
  std::vector<nlohmann::json> ask(const std::string& command);

 private:
  struct Process {
    pid_t pid;
    int channel;
    std::string unread;
  };

  void start();
  void start_process(const std::string& python, int rank);
  nlohmann::json answer_of(Process& process);
  [[noreturn]] void fail(const std::string& reason);

  std::string script_;
  int processes_;
  std::vector<Process> running_;
  std::filesystem::path folder_;  ///< For what the processes need to find each other.
  std::string failure_;
};

/// What each rank of a peer measured of a command.
Spans spans_of(const std::vector<nlohmann::json>& answers);

/// A peer as contender: a round is one command, its samples the collective's times.
Contender peer_collective(std::string name, std::shared_ptr<Peer> peer, std::string command);

}  // namespace retinue::bench
