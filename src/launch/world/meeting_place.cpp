#include "launch/world/meeting_place.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/parse_number.h"
#include "base/split.h"
#include "launch/world/late_wait.h"
#include "os/files/environment.h"
#include "os/process/process_look.h"
#include "retinue/base/error.h"
#include "retinue/os/detail/late_after.h"
#include "retinue/os/detail/standard_error.h"
#include "retinue/store/file_store.h"
#include "retinue/store/tcp_store.h"

namespace retinue {
namespace {

[[noreturn]] void refuse(std::string_view method, std::string_view why) {
  throw UsageError(
      fmt::format("init method \"{}\": {}; use \"env://\", \"tcp://host:port\" or \"file:///path\"", method, why));
}

std::optional<int> number_in(std::string_view text) {
  const std::optional<int> number = parse_number<int>(text);
  return number.value_or(-1) < 0 ? std::nullopt : number;
}

/// "rank=0&world_size=4".
void read_query(std::string_view method, std::string_view query, MeetingPlace& place) {
  for (const std::string_view item : split(query, '&')) {
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string_view name = item.substr(0, equals);
    const std::optional<int> number = number_in(item.substr(std::min(item.size(), equals + 1)));
    if (!number || (name != "rank" && name != "world_size"))
      refuse(method, fmt::format("\"{}\" is neither rank=N nor world_size=N", item));
    (name == "rank" ? place.rank : place.world_size) = number;
  }
}

MeetingPlace tcp_place(std::string_view method, std::string_view address) {
  MeetingPlace place;
  const std::size_t colon = address.rfind(':');
  const std::optional<int> port = colon == std::string_view::npos ? std::nullopt : number_in(address.substr(colon + 1));
  if (!port || *port < 1 || *port > 65535) refuse(method, "it has no port from 1 to 65535");
  std::string_view host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host.empty()) refuse(method, "it has no host");
  place.host = host;
  place.port = *port;
  return place;
}

/// Whether MASTER_ADDR and MASTER_PORT are of a store that torchrun's agent serves, which speaks PyTorch's language.
bool has_agent_store() {
  return find_variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
}

std::string text_of(const char* name) {
  return find_variable(name).value_or("");
}

/// What all ranks that one torchrun, mpirun or srun started on a host have in common, and no others.
std::string name_of_launch() {
  std::string name;
  if (has_agent_store()) {
    name = fmt::format("torchrun-{}-{}-{}", text_of("TORCHELASTIC_RUN_ID"), text_of("MASTER_PORT"),
                       text_of("TORCHELASTIC_RESTART_COUNT"));
  } else if (auto open_mpi = find_variable("PMIX_NAMESPACE")) {
    name = *std::move(open_mpi);
  } else if (find_variable("SLURM_JOB_ID") && find_variable("SLURM_STEP_ID")) {
    name = fmt::format("slurm-{}.{}", text_of("SLURM_JOB_ID"), text_of("SLURM_STEP_ID"));
  } else {
    const std::string parent = identity_of_process(getppid());
    name = "mpirun-" + (parent.empty() ? std::to_string(getppid()) : parent);
  }
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0 && c != '.' && c != '-'; }, '_');
  return name;
}

/// A file of this host is no place to meet for ranks that the launcher started on others.
void check_that_all_are_here(int world_size) {
  bool is_elsewhere = number_in(text_of("SLURM_STEP_NUM_NODES")).value_or(1) > 1;
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE"})
    is_elsewhere = is_elsewhere || number_in(text_of(name)).value_or(world_size) < world_size;
  if (is_elsewhere)
    throw UsageError(
        fmt::format("init method \"env://\": some of the {} ranks are on other hosts, and need a rendezvous address "
                    "that all can reach: give \"tcp://host:port\", or set MASTER_ADDR and MASTER_PORT, to an address "
                    "of rank 0's host and a free port there",
                    world_size));
}

MeetingPlace place_of_launch(int world_size) {
  check_that_all_are_here(world_size);
  static std::atomic<int> worlds{0};  // As on all ranks, which make them in one order.
  MeetingPlace place;
  place.is_chosen = false;
  place.path = fmt::format("{}/retinue-{}-{}-world{}", find_variable("TMPDIR").value_or("/tmp"), getuid(),
                           name_of_launch(), ++worlds);
  return place;
}

/// Serves until the end of the process: the others may come for another group, while this one serves them already.
std::shared_ptr<Store> serve(const MeetingPlace& place, const TcpStoreOptions& options) {
  static std::mutex mutex;
  static auto* const served = new std::map<std::string, std::pair<pid_t, std::shared_ptr<Store>>>;
  const std::lock_guard lock(mutex);
  auto& [pid, store] = (*served)[place.name()];
  if (!store || pid != getpid()) {  // A fork has its parent's list, but no server.
    try {
      store = std::make_shared<TcpStore>(options);
    } catch (const SystemError& error) {
      if (error.errno_value() != EADDRINUSE) throw;
      throw SystemError(
          fmt::format(
              "rank 0 cannot serve the store at {}, because another process listens there: a second rank 0 (check "
              "RANK), a process of another job, or a process that an earlier rank 0 forked and left behind",
              place.name()),
          EADDRINUSE);
    }
    pid = getpid();
  }
  return store;
}

/// What `open` opens in the time that it is given. Errors: the last one's, with who waits for what.
template <class Open>
std::shared_ptr<Store> wait_to_open(const WorldPlace& place, const WorldOptions& options, const char* what, Open open) {
  const Deadline deadline = Deadline::after(options.timeout);
  const auto head = [&](std::chrono::nanoseconds waited) {
    return fmt::format("group \"{}\": rank {} of {} has waited {} in {} for {}", options.name, place.rank,
                       place.world_size, seconds_text(waited), options.call, what);
  };
  const auto begin = Deadline::Clock::now();
  try {
    std::shared_ptr<Store> store = wait_with_reports(
        late_after_of(options.late_after), deadline,
        [&](Deadline look) {
          return open(std::max<std::chrono::nanoseconds>(look.left(), std::chrono::milliseconds(1)));
        },
        [&](const TimeoutError& error, std::chrono::nanoseconds waited) {
          write_standard_error(fmt::format("retinue: {}\n  {}; {}\n", head(waited), error.what(), end_text(deadline)));
        });
    store->set_timeout(options.timeout);
    return store;
  } catch (const TimeoutError& error) {
    throw TimeoutError(fmt::format("{}: {}", head(Deadline::Clock::now() - begin), error.what()));
  }
}

}  // namespace

std::string MeetingPlace::name() const {
  if (port == 0) return "file://" + path;
  return host.find(':') == std::string::npos ? fmt::format("tcp://{}:{}", host, port)
                                             : fmt::format("tcp://[{}]:{}", host, port);
}

MeetingPlace meeting_place_of(const std::string& init_method) {
  constexpr std::string_view kTcp = "tcp://";
  constexpr std::string_view kFile = "file://";
  std::string_view rest = init_method;
  const std::size_t question = rest.find('?');
  const std::string_view query = question == std::string_view::npos ? "" : rest.substr(question + 1);
  rest = rest.substr(0, question);
  MeetingPlace place;
  if (rest.starts_with(kTcp)) {
    place = tcp_place(init_method, rest.substr(kTcp.size()));
  } else if (rest.starts_with(kFile)) {
    place.path = rest.substr(kFile.size());
    if (place.path.size() < 2 || place.path[0] != '/') refuse(init_method, "the path is not absolute");
  } else {
    refuse(init_method, "this init method does not exist");
  }
  read_query(init_method, query, place);
  return place;
}

MeetingPlace meeting_place_of_environment(const WorldPlace& rank) {
  if (has_agent_store()) return place_of_launch(rank.world_size);
  const auto host = find_variable("MASTER_ADDR");
  const auto port = find_variable("MASTER_PORT");
  if (host && port) {
    const std::string bracketed =
        host->find(':') == std::string::npos || host->starts_with('[') ? *host : fmt::format("[{}]", *host);
    const std::string address = fmt::format("{}:{}", bracketed, *port);
    return tcp_place(fmt::format("tcp://{} (MASTER_ADDR and MASTER_PORT)", address), address);
  }
  if (!host && !port && !rank.source.empty() && !rank.source.starts_with("RANK"))
    return place_of_launch(rank.world_size);
  throw UsageError(fmt::format(
      "init method \"env://\": {} ranks that Retinue did not start need a rendezvous address: set {}, to an address of "
      "rank 0's host and a free port there, the same on all ranks; or give \"tcp://host:port\" or \"file:///path\"",
      rank.world_size,
      host   ? "MASTER_PORT"
      : port ? "MASTER_ADDR"
             : "MASTER_ADDR and MASTER_PORT"));
}

std::shared_ptr<Store> open_store(const MeetingPlace& meeting, const WorldPlace& place, const WorldOptions& options) {
  if (meeting.port == 0)
    return wait_to_open(place, options, "the ranks of an earlier group to leave the file", [&](Store::Time timeout) {
      return std::make_shared<FileStore>(FileStoreOptions{.path = meeting.path,
                                                          .world_size = place.world_size,
                                                          .is_meeting = true,
                                                          .takes_over = !meeting.is_chosen,
                                                          .timeout = timeout});
    });
  TcpStoreOptions tcp{
      .host = meeting.host, .port = meeting.port, .is_server = place.rank == 0, .timeout = options.timeout};
  if (tcp.is_server) return serve(meeting, tcp);
  return wait_to_open(place, options, "rank 0's store", [&](Store::Time timeout) {
    tcp.timeout = timeout;
    return std::make_shared<TcpStore>(tcp);
  });
}

namespace {

struct Unread {
  std::shared_ptr<Store> store;
  std::vector<std::string> keys;
  pid_t pid;  ///< A fork's end is not the store's.
};

std::mutex unread_mutex;

std::vector<Unread>& all_unread() {
  static auto* const all = new std::vector<Unread>;
  return *all;
}

void wait_for_readers() {
  const Deadline deadline = Deadline::after(std::chrono::seconds(1));
  const std::lock_guard lock(unread_mutex);
  for (const Unread& unread : all_unread()) {
    if (unread.pid != getpid()) continue;
    try {
      unread.store->wait(unread.keys, deadline);
    } catch (const std::exception&) {
      // Somebody ended without reading.
    }
  }
}

}  // namespace

void wait_for_readers_at_exit(const std::shared_ptr<Store>& store, std::vector<std::string> keys) {
  if (keys.empty()) return;
  const std::lock_guard lock(unread_mutex);
  if (all_unread().empty()) std::atexit(wait_for_readers);
  all_unread().push_back({store, std::move(keys), getpid()});
}

}  // namespace retinue
