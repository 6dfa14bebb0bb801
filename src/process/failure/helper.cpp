#include "process/failure/helper.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <string>

#include "os/process/process_calls.h"
#include "os/process/scheduling.h"
#include "os/sync/clock.h"
#include "os/testing/fault_point.h"
#include "process/crash/crash_writer.h"
#include "process/failure/failure_text.h"
#include "process/symbols/symbolizer.h"
#include "retinue/base/error.h"
#include "retinue/os/detail/standard_error.h"

namespace retinue {
namespace {

bool has_unnamed_frames(const CrashRecord& record) {
  return record.phase.load(std::memory_order_acquire) != 0 && record.frame_count > 0 &&
         record.stack_phase.load(std::memory_order_acquire) == 0;
}

bool ended_badly(const ProcessSlot& slot) {
  const int status = slot.exit_status.load(std::memory_order_acquire);
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

bool wrote_its_file(const EndedRank& rank) {
  return stamp_of_file(rank.error_file) != rank.error_file_before;
}

/// When the file was written, on the clock of the records; its own clock may be another machine's.
std::uint64_t time_of(const FileStamp& stamp, const ProcessSlot& slot) {
  const auto realtime = std::chrono::system_clock::now().time_since_epoch();
  const auto ago = std::chrono::duration_cast<std::chrono::nanoseconds>(realtime).count() - stamp.changed_ns;
  const std::uint64_t started = slot.started_ns.load(std::memory_order_relaxed);
  const std::uint64_t ended = slot.ended_ns.load(std::memory_order_relaxed);
  const auto time = static_cast<std::int64_t>(monotonic_ns()) - ago;
  return static_cast<std::uint64_t>(
      std::clamp(time, static_cast<std::int64_t>(started), static_cast<std::int64_t>(std::max(started, ended))));
}

/// What a program said of its own failure becomes its crash record.
void read_own_report(const EndedRank& rank) {
  CrashRecord& record = rank.slot->crash;
  if (record.stack_phase.load(std::memory_order_acquire) != 0 || !claim_crash_record(record)) return;
  record.stack_phase.store(1, std::memory_order_relaxed);
  const FileStamp stamp = stamp_of_file(rank.error_file);
  const auto [report, problem] = read_error_file(rank.error_file);
  record.signal = 0;
  record.fault_address = 0;
  record.consequence = 0;
  record.frame_count = record.object_count = 0;
  record.time_ns = time_of(stamp, *rank.slot);
  record.kind = problem.empty() ? CrashKind::kErrorFile : CrashKind::kBadErrorFile;
  FixedText(record.type) << report.type;
  FixedText(record.stack) << report.stack;
  FixedText message(record.message);
  if (problem.empty()) {
    message << report.message;
  } else {
    message << "(its error file " << rank.error_file << " " << problem << ")";
  }
  record.stack_phase.store(2, std::memory_order_release);
  complete_crash_record(record);
}

using RanksByFile = std::map<std::string, std::vector<const EndedRank*>>;

RanksByFile by_file(const std::vector<EndedRank>& ranks) {
  RanksByFile files;
  for (const EndedRank& rank : ranks)
    if (!rank.error_file.empty() && ended_badly(*rank.slot)) files[rank.error_file].push_back(&rank);
  return files;
}

void read_own_reports(const RanksByFile& files) {
  for (const auto& [file, ranks] : files) {
    if (!wrote_its_file(*ranks.front())) continue;
    // Of several that could have written it nobody knows who did; those that the job killed did not.
    const auto exited = [](const EndedRank* rank) { return WIFEXITED(rank->slot->exit_status.load()); };
    const bool is_clear = ranks.size() == 1 || std::count_if(ranks.begin(), ranks.end(), exited) == 1;
    const auto writer = ranks.size() == 1 ? ranks.begin() : std::find_if(ranks.begin(), ranks.end(), exited);
    if (is_clear) read_own_report(**writer);
  }
}

/// Never freed: the process ends, which frees it faster.
Symbolizer& symbolizer_of_the_helper() {
  static auto& symbolizer = *new Symbolizer;
  return symbolizer;
}

void symbolize(CrashRecord& record, Symbolizer& symbolizer) {
  record.stack_phase.store(1, std::memory_order_relaxed);
  fault_point("helper.work");
  FixedText(record.stack) << symbolizer.symbolize(record);
  record.stack_phase.store(2, std::memory_order_release);
}

void symbolize_all(const std::vector<EndedRank>& ranks) {
  std::vector<CrashRecord*> records;
  for (const EndedRank& rank : ranks)
    if (has_unnamed_frames(rank.slot->crash)) records.push_back(&rank.slot->crash);
  // The likely root cause first: there may not be time for all.
  std::sort(records.begin(), records.end(),
            [](const CrashRecord* a, const CrashRecord* b) { return a->time_ns < b->time_ns; });
  Symbolizer& symbolizer = symbolizer_of_the_helper();
  for (CrashRecord* record : records) symbolize(*record, symbolizer);
}

void write_file(const std::string& file, const ErrorReport& report) {
  try {
    write_error_file(file, report);
  } catch (const Error& error) {
    write_standard_error(fmt::format("retinue: {} (the path comes from {})\n", error.what(), kErrorFileVariable));
  }
}

/// Plain exit codes are left out: a program that ends with one had its chance to say why.
void write_reports(const RanksByFile& files) {
  for (const auto& [file, ranks] : files) {
    if (std::any_of(ranks.begin(), ranks.end(), [](const EndedRank* rank) { return wrote_its_file(*rank); })) continue;
    std::vector<RankOutcome> failures;
    for (const EndedRank* rank : ranks) {
      RankOutcome outcome = outcome_of(*rank->slot);
      const bool is_plain_exit = outcome.end == RankEnd::kExited && outcome.message.empty();
      if (is_failure(outcome) && !is_plain_exit) failures.push_back(std::move(outcome));
    }
    if (!failures.empty()) write_file(file, error_report_of(failures[root_cause(failures)]));
  }
}

/// In a process of its own where the rights differ, since a report needs the guardian's afterwards.
void run_with(const CallerRights& rights, const std::function<void()>& work) {
  if (!rights.differ()) return work();
  const pid_t helper = getpid();
  const pid_t pid = fork();
  if (pid < 0)
    write_standard_error(fmt::format(
        "retinue: the stack, the error file and the trace of a failed rank are lost: cannot fork a process: {}\n",
        std::strerror(errno)));
  if (pid == 0) {
    try {
      rights.take();
      die_with_parent(helper);
      work();
    } catch (const std::exception& error) {
      write_standard_error(
          fmt::format("retinue: the stack, the error file or the trace of a failed rank is lost: {}\n", error.what()));
    }
    _exit(0);
  }
  while (pid > 0 && waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
}

}  // namespace

pid_t fork_helper() {
  const pid_t guardian = getpid();
  const pid_t pid = fork();
  if (pid != 0) return pid;
  die_with_parent(guardian);
  prctl(PR_SET_NAME, "retinue-helper");
  request_default_slice();
  fault_point("helper.start");
  return 0;
}

bool needs_helper(const EndedRank& rank) {
  return has_unnamed_frames(rank.slot->crash) || (!rank.error_file.empty() && ended_badly(*rank.slot));
}

pid_t start_helper(const std::vector<EndedRank>& ranks, const CallerRights& rights,
                   const std::function<void()>& write_files, const std::function<void()>& then) {
  const pid_t pid = fork_helper();
  if (pid != 0) return std::max(pid, 0);
  run_with(rights, [&] {
    const RanksByFile files = by_file(ranks);
    read_own_reports(files);
    symbolize_all(ranks);
    write_reports(files);
    write_files();
  });
  then();
  _exit(0);
}

pid_t start_helper_for_program(CrashRecord& record, const std::string& error_file) {
  const pid_t pid = fork_helper();
  if (pid != 0) return std::max(pid, 0);
  symbolize(record, symbolizer_of_the_helper());
  write_file(error_file, error_report_of(outcome_of_crash(record)));
  _exit(0);
}

}  // namespace retinue
