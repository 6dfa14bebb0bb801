#include "store/token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "os/files/private_file.h"
#include "retinue/base/error.h"
#include "store/places.h"
#include "support/fork_shared.h"
#include "support/usage_error.h"

namespace retinue {
namespace {

using test::usage_error_of;

class TokenTest : public testing::Test {
 protected:
  TokenTest() {
    unsetenv("RETINUE_TOKEN");
    setenv("XDG_CONFIG_HOME", folder_.path().c_str(), 1);
    setenv("HOME", (folder_.path() + "/house").c_str(), 1);
  }
  void write(const std::string& text, mode_t mode) const {
    std::filesystem::create_directories(folder_.file("retinue"));
    std::ofstream(path_) << text;
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }

  test::TemporaryFolder folder_;
  std::string path_ = folder_.file("retinue/token");
};

TEST_F(TokenTest, ComesFromTheOptionElseTheVariableElseTheFile) {
  write("in the file\n", 0600);
  setenv("RETINUE_TOKEN", "in the variable", 1);
  EXPECT_EQ(job_token("in the option").secret, "in the option");
  EXPECT_EQ(job_token("").secret, "in the variable");
  EXPECT_EQ(job_token("").source, "RETINUE_TOKEN");
  setenv("RETINUE_TOKEN", "", 1);
  EXPECT_EQ(job_token("").secret, "in the file");
  EXPECT_EQ(job_token("").source, path_);
}

TEST_F(TokenTest, IsFoundWhereTheVariablesSay) {
  EXPECT_EQ(token_file(), path_);
  setenv("XDG_CONFIG_HOME", "relative", 1);
  EXPECT_EQ(token_file(), folder_.path() + "/house/.config/retinue/token");
  unsetenv("XDG_CONFIG_HOME");
  EXPECT_EQ(token_file(), folder_.path() + "/house/.config/retinue/token");
  unsetenv("HOME");
  EXPECT_NE(usage_error_of([] { token_file(); }).find("RETINUE_TOKEN"), std::string::npos);
}

TEST_F(TokenTest, IsNotMadeInAHomeThatDoesNotExist) {
  unsetenv("XDG_CONFIG_HOME");
  const std::string text = usage_error_of([] { job_token(""); });
  EXPECT_NE(text.find("/house, which HOME names, does not exist"), std::string::npos) << text;
  EXPECT_FALSE(std::filesystem::exists(folder_.file("house")));
}

TEST_F(TokenTest, IsMadeOnDemandForThisUserOnly) {
  const Token token = job_token("");
  EXPECT_EQ(token.secret.size(), 64u);
  EXPECT_EQ(token.secret.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(job_token("").secret, token.secret);
  struct stat about {};
  ASSERT_EQ(stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
  ASSERT_EQ(stat(folder_.file("retinue").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0700u);
  std::filesystem::remove(path_);
  EXPECT_NE(job_token("").secret, token.secret);
}

TEST_F(TokenTest, RefusesAFileThatOthersMayRead) {
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0644}) {
    write("a secret", mode);
    const std::string why = usage_error_of([] { job_token(""); });
    EXPECT_NE(why.find(path_), std::string::npos) << why;
    EXPECT_NE(why.find("may be read or written by other users"), std::string::npos) << why;
  }
  write("", 0600);
  EXPECT_NE(usage_error_of([] { job_token(""); }).find("is empty"), std::string::npos);
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_NE(usage_error_of([] { job_token(""); }).find("not a regular file"), std::string::npos);
}

TEST_F(TokenTest, RefusesAnotherUsersFile) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  write("a secret", 0600);
  ASSERT_EQ(chown(path_.c_str(), 12345, static_cast<gid_t>(-1)), 0);
  EXPECT_NE(usage_error_of([] { job_token(""); }).find("belongs to user 12345"), std::string::npos);
}

TEST_F(TokenTest, IsOneForAllThatStartAtOnce) {
  constexpr int kProcesses = 8;
  struct Found {
    char text[64];
  };
  for (int round = 0; round < 20; ++round) {
    std::filesystem::remove_all(folder_.file("retinue"));
    test::ForkShared<Found> found(kProcesses);
    int gate[2];
    ASSERT_EQ(pipe(gate), 0);
    std::vector<pid_t> pids;
    for (int i = 0; i < kProcesses; ++i) {
      pids.push_back(fork());
      if (pids.back() != 0) continue;
      close(gate[1]);
      char byte = 0;
      static_cast<void>(read(gate[0], &byte, 1) == 0);  // Until all are there.
      const Token token = job_token("");
      token.secret.copy(found.get()[i].text, sizeof(Found));
      _exit(token.secret.size() == sizeof(Found) ? 0 : 1);
    }
    close(gate[0]);
    close(gate[1]);
    for (const pid_t pid : pids) {
      int status = -1;
      ASSERT_EQ(waitpid(pid, &status, 0), pid);
      EXPECT_EQ(status, 0);
    }
    std::set<std::string> secrets;
    for (int i = 0; i < kProcesses; ++i) secrets.emplace(found.get()[i].text, sizeof(Found));
    EXPECT_EQ(secrets.size(), 1u);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.file("retinue")), {}), 1) << "drafts are left";
  }
}

TEST_F(TokenTest, OneIsMadeByOne) {
  EXPECT_FALSE(read_private_file(path_).has_value());
  EXPECT_TRUE(make_private_file(path_, "first"));
  EXPECT_FALSE(make_private_file(path_, "second"));
  EXPECT_EQ(read_private_file(path_), "first");
}

}  // namespace
}  // namespace retinue
