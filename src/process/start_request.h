#pragma once

#include <cereal/archives/binary.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/vector.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ipc/job_layout.h"
#include "process/log_request.h"
#include "retinue/process/stop_policy.h"

namespace retinue {

/// What a rank inherits from the process that asks for it, not from the one that forks it.
struct Surroundings {
  std::vector<std::string> environment;  ///< NAME=value
  std::string directory;
  std::uint32_t umask = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> limits;  ///< Soft and hard, by RLIMIT_ number.
  std::vector<std::uint32_t> cpus;                              ///< CPU numbers that it may run on.

  static Surroundings of_this_process();
  /// Makes this process's surroundings these. Errors: SystemError.
  void apply() const;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(environment, directory, umask, limits, cpus);
  }
};

/// What is started, the same in all ranks of a context.
enum class StartKind : std::uint32_t {
  kForkedFunction = 0,    ///< A fork of the guardian runs `entry`.
  kExecutedFunction = 1,  ///< The requester's program is executed and its Runtime runs `entry`.
  kProgram = 2,           ///< A program is executed.
  kClosure = 3,           ///< The requester forks, and the guardian adopts.
};

/// What differs between the ranks of a context.
struct RankRequest {
  std::string archive;                             ///< Functions: their arguments.
  std::string file;                                ///< Programs, and executed functions: what to execute.
  std::vector<std::string> arguments;              ///< From argv[0].
  std::map<std::string, std::string> environment;  ///< Added to the surroundings.
  bool has_no_input = false;                       ///< Reads /dev/null, not what the requester reads.

  template <class Archive>
  void serialize(Archive& output) {
    output(archive, file, arguments, environment, has_no_input);
  }
};

/// All that the guardian needs to start a context's ranks; travels as an archive in a block of job memory.
struct StartRequest {
  StartKind kind = StartKind::kForkedFunction;
  std::string name;
  std::string entry;  ///< The launch room's own: which function to run.
  std::int64_t terminate_wait_ms = 0;
  std::int64_t kill_wait_ms = 0;
  Surroundings surroundings;
  LogRequest logs;
  std::vector<RankRequest> ranks;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(kind, name, entry, terminate_wait_ms, kill_wait_ms, surroundings, logs, ranks);
  }
};

/// Puts the request into a block that the guardian owns and notes it in `record`.
void store_request(JobMemory& memory, ContextRecord& record, const StartRequest& request);
StartRequest load_request(const JobMemory& memory, const ContextRecord& record);

/// Path of the file in which PyTorch's elastic expects rank's failure, as its environment names it; empty: none.
std::string error_file_of(const StartRequest& request, std::size_t rank);

/// What a process asks of the guardian.
enum class ControlKind : std::uint32_t {
  kStart = 0,          ///< With descriptors 0, 1, 2 of the requester.
  kAdopt = 1,          ///< A rank that the requester forked; with its pidfd.
  kStop = 2,           ///< Stop a context's ranks by its policy; its first signal stands in `pid`, 0: SIGTERM.
  kSignal = 3,         ///< Send a context's ranks a signal, whose number stands in `pid`.
  kShutdown = 4,       ///< Stop everything and exit: the program ends.
  kProgramFailed = 5,  ///< The program is about to die, and its crash record is complete.
};

struct ControlMessage {
  ControlKind kind;
  std::uint32_t context;
  std::uint32_t rank;
  std::int32_t pid;
};

}  // namespace retinue
