#pragma once

#include <cereal/types/map.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/vector.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ipc/memory/job_layout.h"
#include "os/process/credentials.h"
#include "os/process/scheduling.h"
#include "process/logs/log_request.h"
#include "retinue/ipc/shared_block.h"
#include "retinue/process/stop_policy.h"

namespace retinue {

/// What a rank inherits from the process that asks for it, not from the one that forks it.
struct ProcessAttributes {
  std::vector<std::string> environment;  ///< NAME=value
  std::string directory;                 ///< Its path, empty where it was removed; it itself comes as a descriptor.
  Credentials credentials;
  Scheduling scheduling;
  std::uint32_t umask = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> limits;  ///< Soft and hard, by RLIMIT_ number.
  std::vector<int> cpus;                                        ///< CPU numbers that it may run on.

  /// `status` is the calling thread's.
  static ProcessAttributes of_this_thread(const ProcessStatus& status);
  /// Makes all but environment, directory and credentials this process's own. Errors: SystemError.
  void enter() const;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(environment, directory, credentials, scheduling, umask, limits, cpus);
  }
};

/// What is started, the same in all ranks of a context.
enum class StartKind : std::uint32_t {
  kForkedFunction = 0,    ///< A fork of the guardian runs `entry`.
  kExecutedFunction = 1,  ///< The caller's program is executed and its Runtime runs `entry`.
  kProgram = 2,           ///< A program is executed.
  kClosure = 3,           ///< The caller forks, and the guardian adopts.
};

/// Some bytes of StartRequest::archives.
struct ArchiveSlice {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(offset, bytes);
  }
};

/// What to execute.
struct Command {
  std::string file;
  std::vector<std::string> arguments;  ///< From argv[0].

  template <class Archive>
  void serialize(Archive& archive) {
    archive(file, arguments);
  }
};

/// What differs between the ranks of a context.
struct RankRequest {
  ArchiveSlice archive;                            ///< Functions: their arguments; may be other ranks' too.
  Command command;                                 ///< Programs.
  std::map<std::string, std::string> environment;  ///< Added to the attributes.
  std::vector<int> cpus;                           ///< That it may run on; empty: as the attributes say.
  std::int32_t threads = 1;                        ///< That its libraries are meant to use.
  int memory_node = -1;                            ///< That its pages come from; -1: any.
  bool has_no_input = false;                       ///< Reads /dev/null, not what the caller reads.

  template <class Archive>
  void serialize(Archive& output) {
    output(archive, command, environment, cpus, threads, memory_node, has_no_input);
  }
};

/// All that the guardian needs to start a context's ranks; travels as an archive in a block of job memory, followed by
/// `archives`, which only the ranks read, and there.
struct StartRequest {
  StartKind kind = StartKind::kForkedFunction;
  std::string name;
  std::string entry;  ///< Of the module launch: which function to run.
  Command command;    ///< Executed functions: the same for all ranks.
  std::int64_t terminate_wait_ms = 0;
  std::int64_t kill_wait_ms = 0;
  std::uint32_t tells_failure = 0;  ///< 1: a failure goes to standard error, as of a Process.
  std::uint32_t daemon = 0;         ///< 1: the ranks are stopped when the program ends, and start nothing.
  /// Time that ranks which are no daemons have to end when the program ends, and each to exit when its function
  /// returned.
  std::int64_t exit_grace_ms = 0;
  ProcessAttributes attributes;
  std::string directory;  ///< Where the ranks start, from the attributes' directory; empty: there.
  LogRequest logs;
  std::vector<RankRequest> ranks;
  // Of the caller alone; not in a request that was loaded.
  std::string archives;                 ///< What the ranks' slices are of.
  std::vector<SharedBlock> references;  ///< What the archives refer to.
  int sentinel_fd = -1;                 ///< Goes to the guardian, which holds it until the context ends.

  template <class Archive>
  void serialize(Archive& archive) {
    archive(kind, name, entry, command, terminate_wait_ms, kill_wait_ms, tells_failure, daemon, exit_grace_ms,
            attributes, directory, logs, ranks);
  }
};

/// Puts the request into a block that the guardian owns and notes it in `record`.
void store_request(JobMemory& memory, ContextRecord& record, const StartRequest& request);
StartRequest load_request(const JobMemory& memory, const ContextRecord& record);
/// Bytes of the archives of a request that was stored, where they lie.
std::string_view stored_archive(const JobMemory& memory, const ContextRecord& record, const ArchiveSlice& slice);

/// Path of the file in which PyTorch's elastic expects rank's failure, as its environment names it; empty: none.
std::string error_file_of(const StartRequest& request, std::size_t rank);

/// What a process asks of the guardian.
enum class ControlKind : std::uint32_t {
  kStart = 0,          ///< With descriptors 0, 1, 2 and the directory of the caller, and a sentinel where there is one.
  kAdopt = 1,          ///< A rank that the caller forked; with its pidfd.
  kStop = 2,           ///< Stop a context's ranks by its policy; its first signal stands in `pid`, 0: SIGTERM.
  kSignal = 3,         ///< Send one rank, or kAllRanks, a signal, whose number stands in `pid`.
  kShutdown = 4,       ///< The program ends: let ranks finish, or with kAtOnce as `rank` stop them, and exit.
  kProgramFailed = 5,  ///< The program is about to die, and its crash record is complete.
  kLeaving = 6,        ///< A rank's function has returned, and its process exits.
  kFinish = 7,         ///< A rank's program ends: what it started may finish, or with kAtOnce as `rank` is stopped.
};

/// In place of a rank.
constexpr std::uint32_t kAllRanks = 0xffffffffu;
constexpr std::uint32_t kAtOnce = 0xfffffffeu;

struct ControlMessage {
  ControlKind kind;
  std::uint32_t context;
  std::uint32_t rank;
  std::int32_t pid;
};

}  // namespace retinue
