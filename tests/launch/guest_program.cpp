// A guest of a job, or a job for guests: guest_program ROLE [JOB].
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "process/observe/found_job.h"
#include "process/observe/job_socket_protocol.h"
#include "retinue/base/error.h"
#include "retinue/ipc/pipe.h"
#include "retinue/ipc/published.h"
#include "retinue/ipc/queue.h"
#include "retinue/ipc/simple_queue.h"
#include "retinue/launch/guest.h"
#include "retinue/launch/runtime.h"

namespace {

using namespace std::chrono_literals;
using retinue::published;

constexpr auto kPatience = 20s;

void say(const std::string& text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

/// What the call throws, by its type.
std::string error_of(const std::function<void()>& call) {
  try {
    call();
    return "nothing";
  } catch (const retinue::UsageError& error) {
    return std::string("UsageError: ") + error.what();
  } catch (const retinue::SystemError& error) {
    return std::string("SystemError: ") + error.what();
  } catch (const retinue::Closed& error) {
    return std::string("Closed: ") + error.what();
  } catch (const retinue::Error& error) {
    return std::string("Error: ") + error.what();
  }
}

/// Squares numbers until there are no more.
void square() {
  auto numbers = published<retinue::Queue<int>>("numbers", kPatience);
  auto squares = published<retinue::SimpleQueue<int>>("squares", kPatience);
  try {
    for (;;) {
      const int number = numbers.get();
      squares.put(number * number);
    }
  } catch (const retinue::Closed&) {
    say("closed");
  }
}

/// Has a task in hand until it is killed.
void hold() {
  auto tasks = published<retinue::Queue<int>>("tasks", kPatience);
  auto block = retinue::SharedBlock::allocate(std::size_t{1} << 20);
  say(std::to_string(tasks.get()));
  pause();
}

/// Uses the queues of a job that ends under its hands.
void outlive() {
  auto words = published<retinue::Queue<int>>("words", kPatience);
  auto rows = published<retinue::SimpleQueue<std::string>>("rows", kPatience);
  auto end = published<retinue::Queue<retinue::Connection<int>>>("ends", kPatience).get();
  rows.put("a guest was here");
  say(error_of([&] { words.get(); }));
  say(error_of([&] { words.put(1); }));
  say(error_of([&] { rows.put("more"); }));
  say(error_of([&] { end.send(1); }));
}

/// Another user's process: it asks as all do, and then at the job's socket itself.
int be_stranger(const std::string& job) {
  constexpr uid_t kNobody = 65534;
  const uid_t user = geteuid();
  if (setresuid(kNobody, kNobody, kNobody) != 0) return 1;
  say(error_of([&] { retinue::join_job(job); }));
  retinue::FoundJob found;
  found.socket_name = retinue::job_socket_prefix(user) + job;
  found.id = job;
  found.user = user;
  say(error_of([&] { retinue::ask_for_slot(found); }));
  return 0;
}

/// Guests, one after the other, until one is refused; then one of them ends, and another one comes in its place.
int be_crowd(const std::string& job) {
  constexpr int kMost = 2000;
  int ends[2];
  if (pipe(ends) != 0) return 1;
  const auto send_guest = [&] {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const std::string joined = error_of([&] { retinue::join_job(job); });
    if (joined != "nothing") say(joined);
    const char answer = joined == "nothing" ? '+' : '-';
    if (write(ends[1], &answer, 1) == 1 && answer == '+') pause();
    _exit(0);
  };
  const auto is_let_in = [&] {
    char answer = '-';
    return read(ends[0], &answer, 1) == 1 && answer == '+';
  };
  pid_t last = 0;
  int count = 0;
  for (pid_t guest = send_guest(); is_let_in() && count < kMost; guest = send_guest()) {
    last = guest;
    ++count;
  }
  say(std::to_string(count));
  kill(last, SIGKILL);
  waitpid(last, nullptr, 0);
  send_guest();
  say(is_let_in() ? "another one" : "nobody more");
  return 0;
}

/// Guests that all come at once.
int be_rush(const std::string& job) {
  constexpr int kGuests = 128;
  int start[2];
  if (pipe(start) != 0) return 1;
  std::vector<pid_t> guests(kGuests);
  for (pid_t& guest : guests) {
    guest = fork();
    if (guest != 0) continue;
    close(start[1]);
    char none;
    if (read(start[0], &none, 1) != 0) _exit(1);
    const std::string joined = error_of([&] { retinue::join_job(job); });
    if (joined != "nothing") say(joined);
    _exit(joined == "nothing" ? 0 : 1);
  }
  close(start[1]);
  int count = 0;
  for (const pid_t guest : guests) {
    int status = -1;
    if (waitpid(guest, &status, 0) == guest && status == 0) ++count;
  }
  say(std::to_string(count));
  return 0;
}

/// A job that ends when a guest has said something.
int be_host(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  const retinue::Queue<int> words({.capacity = 4});
  auto rows = retinue::SimpleQueue<std::string>::create();
  retinue::Queue<retinue::Connection<int>> ends({.capacity = 1});
  auto [here, there] = retinue::Pipe<int>::create();
  ends.put(there);
  retinue::publish("words", words);
  retinue::publish("rows", rows);
  retinue::publish("ends", ends);
  say(runtime.job_id());
  say(rows.get(kPatience).value_or("nobody came"));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "host") return be_host(argc, argv);
  if (role == "stranger") return be_stranger(argv[2]);
  if (role == "crowd") return be_crowd(argv[2]);
  if (role == "rush") return be_rush(argv[2]);
  const std::map<std::string, void (*)()> roles{{"square", square}, {"hold", hold}, {"outlive", outlive}};
  const std::string joined = error_of([&] { retinue::join_job(argc > 2 ? argv[2] : ""); });
  if (joined != "nothing" || !roles.contains(role)) {
    say(joined);
    return 1;
  }
  roles.at(role)();
  return error_of([&] { retinue::join_job(argv[2]); }).starts_with("UsageError") ? 0 : 2;
}
