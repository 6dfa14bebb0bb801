// One process as an object, and several that are waited for together.
#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "retinue/launch/process.h"
#include "retinue/launch/runtime.h"

// [process]
void write_report(const std::string& file, int pages) {
  if (pages < 1) throw std::invalid_argument("a report has pages");
  fmt::print("{} with {} pages\n", file, pages);
}

void write_two_reports() {
  using namespace std::chrono_literals;
  retinue::Process<write_report> good("report.txt", 3);
  good.start();
  good.join();
  fmt::print("{}: exit code {}\n", good.name(), *good.exitcode());

  retinue::Process<write_report> bad({.name = "writer"}, "report.txt", 0);
  bad.start();
  while (!bad.join(100ms)) fmt::print("{} (pid {}) is at work\n", bad.name(), *bad.pid());
  fmt::print("{}: exit code {}\n", bad.name(), *bad.exitcode());  // 1; standard error has the stack, as has failure()
}
// [/process]

// [sentinel]
void work(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

/// Index of the process that ends first.
std::size_t first_to_end(const std::vector<retinue::Process<work>>& processes) {
  std::vector<pollfd> sentinels;
  for (const auto& process : processes) sentinels.push_back({process.sentinel(), POLLIN, 0});
  while (poll(sentinels.data(), sentinels.size(), -1) < 0 && errno == EINTR) continue;
  std::size_t first = 0;
  while (sentinels[first].revents == 0) ++first;
  return first;
}

void race() {
  std::vector<retinue::Process<work>> processes;
  for (const int milliseconds : {3'600'000, 1}) {
    processes.emplace_back(retinue::ProcessOptions{.daemon = true}, milliseconds);
    processes.back().start();
  }
  fmt::print("process {} was first\n", first_to_end(processes));
  processes[0].terminate();
  processes[0].join();
  fmt::print("process 0: exit code {}\n", *processes[0].exitcode());  // -15: ended by SIGTERM
}
// [/sentinel]

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  write_two_reports();
  race();
}
