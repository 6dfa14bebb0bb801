// The helper dies at its work: the report comes all the same, with addresses for the record that it died of.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "ipc/memory/context_table.h"
#include "process/crash/crash_writer.h"
#include "retinue/collective/communicator.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"

using retinue::ProcessException;
using retinue::RankContext;

namespace {

/// The child of `parent` with that name; 0 if there is none.
pid_t find_child(pid_t parent, const std::string& name) {
  pid_t found = 0;
  DIR* folder = opendir("/proc");
  while (const dirent* entry = readdir(folder)) {
    std::ifstream stat("/proc/" + std::string(entry->d_name) + "/stat");
    pid_t pid = 0, parent_pid = 0;
    std::string comm, state;
    if (stat >> pid >> comm >> state >> parent_pid && parent_pid == parent && comm == "(" + name + ")") found = pid;
  }
  closedir(folder);
  return found;
}

bool is_helper_at_work() {
  const auto& memory = *retinue::Runtime::current().memory();
  for (std::uint32_t slot = retinue::kGuardianSlot + 1; slot < retinue::kMaxProcesses; ++slot)
    if (process_slot(memory, slot).crash.stack_phase.load(std::memory_order_acquire) == 1) return true;
  return false;
}

/// Rank 0's stack leads to a pipe that nobody writes to: the helper that opens it waits for ever.
void fail_with_bad_object(RankContext& context, const std::string& pipe) {
  signal(SIGTERM, SIG_IGN);  // Both shall fail, whoever does so first.
  retinue::Communicator(context.world()).barrier();
  if (context.rank() == 1) throw std::runtime_error("an innocent failure");
  const auto& memory = retinue::Runtime::current().memory();
  retinue::CrashRecord& record = process_slot(*memory, memory->own_slot()).crash;
  claim_crash_record(record);
  record.kind = retinue::CrashKind::kException;
  record.time_ns = 1;
  retinue::FixedText(record.type) << "bad::Object";
  retinue::FixedText(record.message) << "with a bad object";
  retinue::FixedText(record.objects[0].path) << pipe;
  record.object_count = 1;
  record.frames[0] = {.offset = 0x1234, .object = 0};
  record.frame_count = 1;
  complete_crash_record(record);
  _exit(1);
}

TEST(HelperDeath, CostsOneRecordItsNames) {
  const std::string pipe = testing::TempDir() + "helper_death_pipe_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto& guardian = process_slot(*retinue::Runtime::current().memory(), retinue::kGuardianSlot).pid;
  pid_t killed = 0;
  std::thread killer([&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(15);
    while (killed == 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (is_helper_at_work()) killed = find_child(guardian.load(), "retinue-helper");
    }
    if (killed != 0) kill(killed, SIGKILL);
  });
  try {
    retinue::spawn<fail_with_bad_object>({.nprocs = 2}, pipe);
    ADD_FAILURE() << "spawn returned although ranks failed";
  } catch (const ProcessException& error) {
    EXPECT_EQ(error.rank(), 0) << error.what();
    EXPECT_EQ(error.outcome().stack, "#0 " + std::filesystem::path(pipe).filename().string() + "+0x1234\n");
    EXPECT_EQ(error.outcomes()[1].message, "an innocent failure") << error.what();
    EXPECT_NE(error.outcomes()[1].stack.find("fail_with_bad_object"), std::string::npos) << error.what();
  }
  killer.join();
  EXPECT_NE(killed, 0) << "there was no helper to kill";
  std::filesystem::remove(pipe);
}

}  // namespace
