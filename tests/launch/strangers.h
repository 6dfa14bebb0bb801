#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <vector>

#include "retinue/launch/join_group.h"
#include "support/fork_shared.h"
#include "support/wait_until.h"

namespace retinue::test {

/// Where processes meet that no job started: memory made before they are forked.
class Table {
 public:
  explicit Table(int members) : members_(static_cast<std::size_t>(members)) {
    shared_ = static_cast<Shared*>(
        mmap(nullptr, sizeof(Shared) + members_ * kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared_->barrier, &attributes, static_cast<unsigned>(members));
    pthread_barrierattr_destroy(&attributes);
  }

  void all_gather(int member, const void* own, void* all, std::size_t bytes) const {
    ASSERT_LE(bytes, kBytes);
    std::memcpy(given(static_cast<std::size_t>(member)), own, bytes);
    pthread_barrier_wait(&shared_->barrier);
    for (std::size_t i = 0; i < members_; ++i) std::memcpy(static_cast<std::byte*>(all) + i * bytes, given(i), bytes);
    pthread_barrier_wait(&shared_->barrier);
  }

  GroupExchange exchange(int member) const {
    return {.rank = member,
            .size = static_cast<int>(members_),
            .name = "strangers",
            .all_gather = [this, member](const void* own, void* all, std::size_t bytes) {
              all_gather(member, own, all, bytes);
            }};
  }

 private:
  static constexpr std::size_t kBytes = 4096;
  struct Shared {
    pthread_barrier_t barrier;
  };
  std::byte* given(std::size_t member) const { return reinterpret_cast<std::byte*>(shared_ + 1) + member * kBytes; }

  std::size_t members_;
  Shared* shared_;
};

/// Runs `body` in `count` processes that know nothing of each other but what was made before. All must end by
/// themselves, without a failure, but `killed`, which is ended by SIGKILL.
inline void run_strangers(int count, const std::function<void(int)>& body, int killed = -1) {
  std::vector<pid_t> pids;
  // They begin together: a fork beside a server that serves another may find the sanitizer's heap locked for ever.
  const ForkShared<std::atomic<bool>> begin;
  for (int i = 0; i < count; ++i) {
    const pid_t pid = fork();
    if (pid != 0) {
      pids.push_back(pid);
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    wait_until([&] { return begin->load(); });
    try {
      body(i);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "stranger " << i << ": " << error.what();
    }
    std::fflush(stdout);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  begin->store(true);
  for (int i = 0; i < count; ++i) {
    int status = -1;
    ASSERT_EQ(waitpid(pids[static_cast<std::size_t>(i)], &status, 0), pids[static_cast<std::size_t>(i)]);
    if (i == killed)
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "stranger " << i << ", status " << status;
    else
      EXPECT_EQ(status, 0) << "stranger " << i;
  }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process was left behind";
}

}  // namespace retinue::test
