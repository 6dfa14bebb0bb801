#include "peer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "build_facts.h"
#include "retinue/base/deadline.h"

namespace retinue::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kEndWait(5);

/// The program's and the caller's environment, and what tells a peer's process its place.
std::vector<std::string> environment_of(const PeerProgram& program, int rank, int processes, const fs::path& folder) {
  std::vector<std::string> variables = {
      fmt::format("RANK={}", rank),
      fmt::format("WORLD_SIZE={}", processes),
      fmt::format("PEER_STORE={}", (folder / "store").string()),
      "PYTHONWARNINGS=ignore",
      "PYTHONDONTWRITEBYTECODE=1",
  };
  // The peer's ranks are all on this machine; a host name that resolves elsewhere must not send them over the network.
  if (std::getenv("GLOO_SOCKET_IFNAME") == nullptr) variables.emplace_back("GLOO_SOCKET_IFNAME=lo");
  variables.insert(variables.end(), program.environment.begin(), program.environment.end());
  const std::size_t own = variables.size();
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const auto is_set = [&](const std::string& set) { return set.starts_with(name); };
    if (std::none_of(variables.begin(), variables.begin() + static_cast<std::ptrdiff_t>(own), is_set))
      variables.emplace_back(text);
  }
  return variables;
}

bool wait_readable(int channel, const Deadline& deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.left());
  pollfd wanted = {.fd = channel, .events = POLLIN, .revents = 0};
  return poll(&wanted, 1, static_cast<int>(left.count())) > 0;
}

}  // namespace

std::string peer_python() {
  if (const char* named = std::getenv("RETINUE_PEER_PYTHON"); named != nullptr && *named != '\0') return named;
  for (const std::string& python : {source_folder() + "/.retinue/venv-peer-torch/bin/python3", build_python()})
    if (fs::exists(python)) return python;
  return "";
}

PeerProgram torch_peer(const std::string& script) {
  const std::string python = peer_python();
  if (python.empty())
    return {.name = script,
            .arguments = {},
            .missing = "no Python with PyTorch: run make peers, or set RETINUE_PEER_PYTHON"};
  return {.name = script, .arguments = {python, source_folder() + "/bench/peers/" + script}};
}

PeerProgram package_peer(const std::string& package, const std::string& script) {
  const std::string python = source_folder() + "/.retinue/venv-peer-" + package + "/bin/python3";
  if (!fs::exists(python))
    return {.name = script, .arguments = {}, .missing = fmt::format("no {}: run make peers", package)};
  return {.name = script, .arguments = {python, source_folder() + "/bench/peers/" + script}};
}

Peer::~Peer() {
  end();
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

void Peer::end() {
  const std::string line = program_.farewell + "\n";
  for (const Process& process : running_) {
    if (line.size() > 1) send(process.channel, line.data(), line.size(), MSG_NOSIGNAL);
    shutdown(process.channel, SHUT_WR);
  }
  const Deadline deadline = Deadline::after(kEndWait);
  for (const Process& process : running_) {
    char rest[256];
    while (wait_readable(process.channel, deadline) && read(process.channel, rest, sizeof rest) > 0) {
    }
    // It has closed its channel, or won't: either way nothing that it does now matters.
    kill(process.pid, SIGKILL);
    waitpid(process.pid, nullptr, 0);
    close(process.channel);
  }
  running_.clear();
}

void Peer::fail(const std::string& reason) {
  failure_ = reason;
  for (const Process& process : running_) kill(process.pid, SIGTERM);  // One that starts others ends those too.
  end();
  throw Unavailable(reason);
}

void Peer::start() {
  if (!program_.missing.empty()) fail(program_.missing);
  std::string name = (fs::temp_directory_path() / "retinue-bench-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) fail(fmt::format("cannot make the folder {}: {}", name, std::strerror(errno)));
  folder_ = name;
  for (int rank = 0; rank < processes_; ++rank) start_process(rank);
}

void Peer::start_process(int rank) {
  std::vector<std::string> variables = environment_of(program_, rank, processes_, folder_);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  std::vector<char*> arguments;
  for (const std::string& argument : program_.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);

  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    fail(fmt::format("cannot make a socket pair: {}", std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    fail(fmt::format("cannot start {}: {}", arguments[0], std::strerror(error)));
  }
  running_.push_back({pid, ends[0], ""});
}

nlohmann::json Peer::answer_of(Process& process) {
  const Deadline deadline = Deadline::after(program_.answer_limit);
  std::size_t end;
  while ((end = process.unread.find('\n')) == std::string::npos) {
    if (!wait_readable(process.channel, deadline))
      fail(fmt::format("{} gave no answer within {} seconds", program_.name, program_.answer_limit.count()));
    char text[65536];
    const ssize_t got = read(process.channel, text, sizeof text);
    if (got <= 0) fail(program_.name + " ended; its message is above");
    process.unread.append(text, static_cast<std::size_t>(got));
  }
  nlohmann::json answer = nlohmann::json::parse(process.unread.substr(0, end), nullptr, false);
  process.unread.erase(0, end + 1);
  if (!answer.is_object()) fail(program_.name + " answered something else than a JSON object");
  if (answer.contains("error")) fail(fmt::format("{}: {}", program_.name, answer["error"].get<std::string>()));
  return answer;
}

std::vector<nlohmann::json> Peer::ask(const std::string& command) {
  if (!failure_.empty()) throw Unavailable(failure_);
  if (running_.empty()) start();
  const std::string line = command + "\n";
  for (const Process& process : running_) {
    if (send(process.channel, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
      fail(program_.name + " ended; its message is above");
  }
  std::vector<nlohmann::json> answers;
  for (Process& process : running_) answers.push_back(answer_of(process));
  return answers;
}

std::vector<Usage> usage_of(const std::vector<nlohmann::json>& answers) {
  std::vector<Usage> usage;
  for (const nlohmann::json& answer : answers)
    usage.push_back({answer.at("cpu_ns"), answer.at("page_faults"), answer.at("memory_bytes")});
  return usage;
}

Spans spans_of(const std::vector<nlohmann::json>& answers) {
  Spans spans;
  for (const nlohmann::json& answer : answers) {
    const auto enter = answer.at("enter").get<std::vector<std::int64_t>>();
    const auto exit = answer.at("exit").get<std::vector<std::int64_t>>();
    std::vector<Span>& of_rank = spans.emplace_back(enter.size());
    for (std::size_t i = 0; i < enter.size(); ++i) of_rank[i] = {enter[i], exit.at(i)};
  }
  return spans;
}

Spans spans_of_ranks(Peer& peer, const std::string& command) {
  return spans_of(peer.ask(command).front().at("ranks").get<std::vector<nlohmann::json>>());
}

Contender peer_collective(std::string name, std::shared_ptr<Peer> peer, std::string command, TimesOf times_of) {
  return {std::move(name), [peer = std::move(peer), command = std::move(command), times_of] {
            return times_of(spans_of(peer->ask(command)));
          }};
}

}  // namespace retinue::bench
