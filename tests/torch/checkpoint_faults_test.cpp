// Saves that fail, and ranks that are killed during a save.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "support/captured_stderr.h"
#include "support/ranks.h"
#include "support/says.h"
#include "torch/checkpoint_scene.h"

namespace retinue {
namespace {

namespace fs = std::filesystem;
using test::contents_of;
using test::error_of;
using test::Folder;
using test::group_of;
using test::run_ranks;
using test::says;

constexpr std::int64_t kRows = 1024;
constexpr std::size_t kBytes = kRows * kRows * sizeof(float);

/// A net of 4 MB whose elements are all `value`.
torch::nn::Linear make_net(float value) {
  torch::nn::Linear net(torch::nn::LinearOptions(kRows, kRows).bias(false));
  const torch::NoGradGuard no_grad;
  net->weight.fill_(value);
  return net;
}

bool is_all(const torch::nn::Linear& net, float value) {
  return torch::equal(net->weight, torch::full({kRows, kRows}, value));
}

/// Writes of this process behind these bytes of a file fail, or are a SIGXFSZ.
void limit_files(rlim_t bytes) {
  const rlimit limit{bytes, RLIM_INFINITY};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/// The step in which nothing else than a write of the disk fails.
void fail_in_the_background(const JobGroup& members, const std::string& folder,
                            const std::function<void(Checkpoint&, const torch::nn::Linear&)>& next_call) {
  std::signal(SIGXFSZ, SIG_IGN);
  Checkpoint checkpoint(folder, group_of(members), {.async = true});
  checkpoint.save(1, {.model = make_net(1)});
  checkpoint.wait();
  if (members.rank == 1) limit_files(kBytes * 3 / 4);
  const torch::nn::Linear net = make_net(2);
  checkpoint.save(2, {.model = net});
  const std::string text = error_of([&] { next_call(checkpoint, net); });
  EXPECT_EQ(text, "Checkpoint: cannot save step 2: rank 1: cannot write " + folder +
                      "/step-000000002.pt.unfinished: EFBIG (File too large)");
  EXPECT_EQ(checkpoint.steps(), std::vector<std::int64_t>{1});
  EXPECT_FALSE(fs::exists(folder + "/step-000000002.pt.unfinished"));
  limit_files(RLIM_INFINITY);
  checkpoint.save(2, {.model = net});
  const torch::nn::Linear loaded = make_net(0);
  EXPECT_EQ(checkpoint.load_newest({.model = loaded}), 2);
  EXPECT_TRUE(is_all(loaded, 2));
}

TEST(CheckpointFaults, AnErrorInTheBackgroundComesOutOfWait) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    fail_in_the_background(members, folder.path(), [](Checkpoint& checkpoint, const auto&) { checkpoint.wait(); });
  });
}

TEST(CheckpointFaults, AnErrorInTheBackgroundComesOutOfTheNextSave) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    fail_in_the_background(members, folder.path(), [](Checkpoint& checkpoint, const torch::nn::Linear& net) {
      checkpoint.save(3, {.model = net});
    });
  });
}

TEST(CheckpointFaults, AnErrorInTheBackgroundComesOutOfALoad) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    fail_in_the_background(members, folder.path(), [](Checkpoint& checkpoint, const torch::nn::Linear& net) {
      checkpoint.load_newest({.model = net});
    });
  });
}

TEST(CheckpointFaults, AnErrorThatNoCallThrewIsPrinted) {
  const Folder folder;
  run_ranks(1, [&](const JobGroup& members) {
    const test::CapturedStderr captured;
    captured.begin();
    {
      Checkpoint checkpoint(folder.path() + "/below", group_of(members), {.async = true});
      fs::remove(folder.path() + "/below");
      checkpoint.save(1, {.model = make_net(1)});
    }
    EXPECT_EQ(captured.text(), "retinue: Checkpoint: cannot save step 1: cannot list " + folder.path() +
                                   "/below: ENOENT (No such file or directory)\n");
  });
}

TEST(CheckpointFaults, AFolderThatIsNoneIsAnErrorOfAllRanks) {
  const Folder folder;
  std::ofstream(folder.path() + "/file") << "no folder";
  run_ranks(2, [&](const JobGroup& members) {
    const ProcessGroup group = group_of(members);
    const std::string path = folder.path() + "/file/below";
    EXPECT_EQ(error_of([&] { Checkpoint(path, group); }), "Checkpoint: cannot use the folder " + path +
                                                              ": rank 0: cannot create the folder " + path +
                                                              ": ENOTDIR (Not a directory)");
    Checkpoint checkpoint(folder.path() + "/gone", group);
    barrier(group);
    if (members.rank == 0) fs::remove_all(folder.path() + "/gone");
    barrier(group);
    const std::string text = error_of([&] { checkpoint.save(1, {.model = make_net(1)}); });
    EXPECT_TRUE(says(text, "Checkpoint: cannot save step 1: rank 0: cannot list " + folder.path() + "/gone: ENOENT"))
        << text;
  });
}

TEST(CheckpointFaults, ARankWithoutMemoryForTheCopyIsAnErrorOfAllRanks) {
  const Folder folder;
  run_ranks(2, [&](const JobGroup& members) {
    Checkpoint checkpoint(folder.path(), group_of(members), {.async = true});
    const torch::nn::Linear net(torch::nn::LinearOptions(4096, 4096).bias(false));  // Of 64 MB.
    if (members.rank == 1) {
      const rlimit limit{test::mapped_bytes() + (std::size_t{16} << 20), RLIM_INFINITY};
      ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    }
    checkpoint.save(1, {.model = net});
    const std::string text = error_of([&] { checkpoint.wait(); });
    EXPECT_TRUE(says(text, "Checkpoint: cannot save step 1: rank 1: ")) << text;
    EXPECT_TRUE(says(text, "can't allocate memory")) << text;
    const rlimit none{RLIM_INFINITY, RLIM_INFINITY};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
    checkpoint.save(2, {.model = net});
    checkpoint.wait();
    EXPECT_EQ(checkpoint.steps(), std::vector<std::int64_t>{2});
  });
}

/// A disk of 6 MB, where one checkpoint fits and two don't.
TEST(CheckpointFaults, AFullDiskIsAnErrorOfAllRanks) {
  const Folder folder;
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("none", folder.path().c_str(), "tmpfs", 0, "size=6m") != 0)
    GTEST_SKIP() << "a file system of the test's own is not permitted here: " << strerrordesc_np(errno);
  run_ranks(2, [&](const JobGroup& members) {
    Checkpoint checkpoint(folder.path(), group_of(members), {.async = true});
    checkpoint.save(1, {.model = make_net(1)});
    checkpoint.save(2, {.model = make_net(2)});
    const std::string text = error_of([&] { checkpoint.wait(); });
    EXPECT_TRUE(says(text, "Checkpoint: cannot save step 2: rank 0: cannot reserve ")) << text;
    EXPECT_TRUE(says(text, "step-000000002.pt.unfinished: ENOSPC (No space left on device)")) << text;
    const torch::nn::Linear loaded = make_net(0);
    EXPECT_EQ(checkpoint.load_newest({.model = loaded}), 1);
    EXPECT_TRUE(is_all(loaded, 1));
  });
  umount2(folder.path().c_str(), MNT_DETACH);
}

void kill_this_process(int) {
  kill(getpid(), SIGKILL);
}

/// The rank is killed at a write: rank 0 where it reserves the file, rank 1 in the middle of its part.
class CheckpointKill : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, CheckpointKill, testing::Values(0, 1));

TEST_P(CheckpointKill, TheWholeCheckpointBeforeIsLoaded) {
  const Folder folder;
  const int victim = GetParam();
  run_ranks(2,
            [&](const JobGroup& members) {
              Checkpoint checkpoint(folder.path(), group_of(members), {.async = true});
              checkpoint.save(1, {.model = make_net(1)});
              checkpoint.wait();
              if (members.rank == victim) {
                std::signal(SIGXFSZ, kill_this_process);
                limit_files(kBytes * 3 / 4);
              }
              checkpoint.save(2, {.model = make_net(2)});
              EXPECT_THROW(checkpoint.wait(), PeerLost);
            },
            {.killed = {victim}});
  EXPECT_TRUE(fs::exists(folder.path() + "/step-000000002.pt.unfinished"));
  EXPECT_FALSE(fs::exists(folder.path() + "/step-000000002.pt"));
  run_ranks(2, [&](const JobGroup& members) {
    Checkpoint checkpoint(folder.path(), group_of(members), {.async = true});
    const torch::nn::Linear loaded = make_net(0);
    EXPECT_EQ(checkpoint.load_newest({.model = loaded}), 1);
    EXPECT_TRUE(is_all(loaded, 1));
    checkpoint.save(2, {.model = make_net(3)});
    EXPECT_EQ(checkpoint.load_newest({.model = loaded}), 2);
    EXPECT_TRUE(is_all(loaded, 3));
  });
  EXPECT_FALSE(fs::exists(folder.path() + "/step-000000002.pt.unfinished"));
}

}  // namespace
}  // namespace retinue
