#include <gtest/gtest.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "cli/shell_run.h"
#include "support/paths.h"

using retinue::test::contains;
using retinue::test::shell_run;
using Result = retinue::test::ShellResult;

namespace {

/// An empty folder in the temporary folder, $FOLDER in commands, gone after the test.
class RunJob : public testing::Test {
 protected:
  RunJob() {
    std::string pattern = testing::TempDir() + "retinue_run_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    setenv("FOLDER", folder_.c_str(), 1);
  }
  ~RunJob() override { std::filesystem::remove_all(folder_); }
  std::string text_of(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_;
};

constexpr const char* kFailsFirst =
    "sh -c 'echo $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS port $MASTER_PORT; "
    "test $RANK = 0 || test $TORCHELASTIC_RESTART_COUNT = 1 || exit 5'";

TEST_F(RunJob, StartsAllRanksAgainAfterAFailure) {
  const Result result = shell_run(std::string("$RETINUE run -n 2 --max-restarts 2 ") + kFailsFirst);
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_TRUE(contains(result.output, "exited with code 5")) << result.output;
  EXPECT_TRUE(contains(result.output, "restart 1 of 2")) << result.output;
  EXPECT_FALSE(contains(result.output, "restart 2 of 2")) << result.output;
  EXPECT_TRUE(contains(result.output, "0/2 port ")) << result.output;
  EXPECT_TRUE(contains(result.output, "1/2 port ")) << result.output;
}

TEST_F(RunJob, RestartsHaveAnEnd) {
  const Result result = shell_run("$RETINUE run --max-restarts 2 sh -c 'echo life; exit 6'");
  EXPECT_EQ(WEXITSTATUS(result.status), 6);
  std::size_t lives = 0;
  for (std::size_t at = 0; (at = result.output.find("life\n", at)) != std::string::npos; ++at) ++lives;
  EXPECT_EQ(lives, 3u) << result.output;
}

TEST_F(RunJob, MakesAFolderPerRunAndAttempt) {
  const std::string command = "$RETINUE run --rdzv-id mine --log-dir $FOLDER/a/b --max-restarts 1 sh -c 'exit 1'";
  const Result first = shell_run(command);
  EXPECT_TRUE(std::filesystem::is_directory(folder_ / "a/b/mine/attempt_0")) << first.output;
  EXPECT_TRUE(std::filesystem::is_directory(folder_ / "a/b/mine/attempt_1")) << first.output;
  EXPECT_TRUE(contains(first.output, "logs are in " + (folder_ / "a/b/mine").string() + "\n")) << first.output;
  EXPECT_TRUE(contains(shell_run(command).output, (folder_ / "a/b/mine_").string()));
}

TEST_F(RunJob, SaysWhyThereCanBeNoLogs) {
  const Result result = shell_run("touch $FOLDER/file; $RETINUE run --log-dir $FOLDER/file/x true");
  EXPECT_EQ(WEXITSTATUS(result.status), 2);
  EXPECT_TRUE(contains(result.output, "Not a directory")) << result.output;
}

TEST_F(RunJob, RunsSeveralProgramsAsOneWorld) {
  const Result result = shell_run(
      "$RETINUE run -n 1 sh -c 'echo learner $RANK of $WORLD_SIZE, $ROLE_RANK of $ROLE_WORLD_SIZE' : "
      "-n 2 --role actor sh -c 'echo $ROLE_NAME $RANK of $WORLD_SIZE, $ROLE_RANK of $ROLE_WORLD_SIZE'");
  EXPECT_EQ(result.status, 0) << result.output;
  for (const char* line : {"learner 0 of 3, 0 of 1\n", "actor 1 of 3, 0 of 2\n", "actor 2 of 3, 1 of 2\n"})
    EXPECT_TRUE(contains(result.output, line)) << result.output;
}

TEST_F(RunJob, GivesStandardInputToTheNamedRank) {
  const std::string body = " sh -c 'echo \"$RANK:$(cat)\"'";
  const Result one = shell_run("echo word | $RETINUE run -n 3 --stdin 1" + body);
  EXPECT_EQ(one.status, 0) << one.output;
  for (const char* line : {"0:\n", "1:word\n", "2:\n"}) EXPECT_TRUE(contains(one.output, line)) << one.output;
  EXPECT_EQ(shell_run("echo word | $RETINUE run --stdin none" + body).output, "0:\n");
  EXPECT_EQ(shell_run("echo word | $RETINUE run" + body).output, "0:word\n");
}

TEST_F(RunJob, TheNamedRankReadsWhatIsTyped) {
  if (shell_run("command -v script").status != 0) GTEST_SKIP() << "the command `script` is missing";
  const Result result = shell_run(
      "echo typed | script -qec \"$RETINUE run -n 2 --stdin 1 sh -c "
      "'test \\$RANK = 0 || { read line; echo got \\$line; }'\" /dev/null");
  EXPECT_TRUE(contains(result.output, "got typed")) << result.output;
}

TEST_F(RunJob, WrapsTheNamedRank) {
  const Result result =
      shell_run("$RETINUE run -n 2 --wrap 'env NAME=\"two words\"' --wrap-ranks 1 sh -c 'echo $RANK:$NAME'");
  EXPECT_TRUE(contains(result.output, "0:\n")) << result.output;
  EXPECT_TRUE(contains(result.output, "1:two words\n")) << result.output;
}

TEST_F(RunJob, ADryRunShowsCommandsThatAShellTakesAndStartsNothing) {
  const Result shown = shell_run(
      "$RETINUE run -n 2 --dry-run --master-port 4711 sh -c 'touch $FOLDER/made; echo \"$RANK of $WORLD_SIZE\" "
      "\"$MASTER_PORT\"'");
  EXPECT_EQ(shown.status, 0) << shown.output;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "made"));
  EXPECT_EQ(shell_run(shown.output).output, "0 of 2 4711\n1 of 2 4711\n") << shown.output;
}

/// The writer is in a session of its own, so it outlives the rank until the job sweeps it.
TEST_F(RunJob, EndsAlthoughAnOrphanWritesOn) {
  const Result result = shell_run(
      "timeout 60 $RETINUE run -n 1 --no-python --tee 3 --log-dir $FOLDER sh -c "
      "'setsid sh -c \"while :; do echo on and on; sleep 0.001; done\" & echo the rank ends; exit 0' >/dev/null");
  EXPECT_EQ(result.status, 0) << result.output;
}

TEST_F(RunJob, RunsPythonScripts) {
  if (shell_run("python3 -c pass").status != 0) GTEST_SKIP() << "python3 is missing";
  shell_run("echo 'import os, sys; print(os.environ[\"RANK\"], sys.argv[1:], __name__)' > $FOLDER/it.py");
  EXPECT_EQ(shell_run("$RETINUE run $FOLDER/it.py a").output, "0 ['a'] __main__\n");
  EXPECT_EQ(shell_run("$RETINUE run --run-path $FOLDER/it.py a").output, "0 ['a'] __main__\n");
  EXPECT_EQ(shell_run("cd $FOLDER; $RETINUE run -m it a").output, "0 ['a'] __main__\n");
  EXPECT_NE(shell_run("$RETINUE run --no-python $FOLDER/it.py").status, 0);
}

TEST_F(RunJob, WrongUseIsCodeTwo) {
  EXPECT_EQ(WEXITSTATUS(shell_run("$RETINUE run --no-such-flag x").status), 2);
  EXPECT_EQ(WEXITSTATUS(shell_run("$RETINUE run --nnodes 2 x").status), 2);
  EXPECT_EQ(WEXITSTATUS(shell_run("$RETINUE run -n").status), 2);
  EXPECT_EQ(shell_run("$RETINUE run --help").status, 0);
  EXPECT_TRUE(contains(shell_run("$RETINUE run --help").output, "retinue run -n 1 ./learner : -n 3 ./actor"));
}

TEST_F(RunJob, SaysWhichCommandWasMeant) {
  for (const std::string word : {"rum", "runn", "un"}) {
    const Result result = shell_run("$RETINUE " + word + " -n 2 true");
    EXPECT_EQ(WEXITSTATUS(result.status), 2);
    EXPECT_TRUE(contains(result.output, "no command \"" + word + "\"; did you mean \"run\"?")) << result.output;
  }
  EXPECT_TRUE(contains(shell_run("$RETINUE stak").output, "did you mean \"stacks\"?"));
  const Result other = shell_run("$RETINUE something");
  EXPECT_EQ(WEXITSTATUS(other.status), 2);
  EXPECT_FALSE(contains(other.output, "did you mean")) << other.output;
  EXPECT_TRUE(contains(other.output, "The commands are run, completion, ps, ")) << other.output;
}

TEST_F(RunJob, WithoutACommandItIsHelpAsAnError) {
  const Result bare = shell_run("$RETINUE");
  EXPECT_EQ(WEXITSTATUS(bare.status), 2);
  const Result help = shell_run("$RETINUE --help");
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(bare.output, help.output);
  EXPECT_TRUE(contains(help.output, "Usage: retinue [OPTIONS] SUBCOMMAND")) << help.output;
  EXPECT_EQ(shell_run("$RETINUE 2>/dev/null").output, "");
}

TEST_F(RunJob, BindsRanksWhereADryRunSays) {
  const std::string command = "$RETINUE run --numa-binding exclusive";
  const std::string shown = shell_run(command + " --dry-run true").output;
  const auto at = shown.find(", on CPUs ");
  ASSERT_NE(at, std::string::npos) << shown;
  const std::string cpus = shown.substr(at + 10, shown.find('\n', at) - at - 10);
  EXPECT_EQ(shell_run(command + " grep Cpus_allowed_list /proc/self/status").output,
            "Cpus_allowed_list:\t" + cpus + "\n");
  EXPECT_TRUE(contains(shell_run("$RETINUE run -n 1000 --numa-binding exclusive true").output, "start fewer ranks"));
}

TEST_F(RunJob, CompletesFlagsInBash) {
  if (shell_run("bash -c true").status != 0) GTEST_SKIP() << "bash is missing";
  const auto completed = [](const std::string& words, int at) {
    return shell_run("bash -c 'eval \"$($RETINUE completion bash)\"; COMP_WORDS=(" + words +
                     "); COMP_CWORD=" + std::to_string(at) + "; _retinue; echo \"${COMPREPLY[*]}\"'")
        .output;
  };
  EXPECT_EQ(completed("retinue ru", 1), "run\n");
  EXPECT_EQ(completed("retinue run --max-r", 2), "--max-restarts\n");
  EXPECT_EQ(completed("retinue run --no-python --max-r", 3), "--max-restarts\n");
  EXPECT_EQ(completed("retinue run -n au", 3), "auto\n");
  EXPECT_EQ(shell_run("cd $FOLDER; touch its-file; bash -c 'eval \"$($RETINUE completion bash)\"; "
                      "COMP_WORDS=(retinue run -n 2 x its-); COMP_CWORD=5; _retinue; echo \"${COMPREPLY[*]}\"'")
                .output,
            "its-file\n");
  EXPECT_EQ(completed("retinue run --numa-binding so", 3), "socket\n");
  // bash makes words of `=` and of what is behind it.
  EXPECT_EQ(completed("retinue run --numa-binding = so", 4), "socket\n");
  EXPECT_TRUE(contains(completed("retinue run --numa-binding =", 3), "socket"));
  EXPECT_EQ(completed("retinue run --nproc-per-node = 4 --te", 5), "--tee\n");
  EXPECT_EQ(shell_run("cd $FOLDER; touch \"my program\"; bash -c 'eval \"$($RETINUE completion bash)\"; "
                      "COMP_WORDS=(retinue run ./my); COMP_CWORD=2; _retinue; printf \"%s,\" \"${COMPREPLY[@]}\"'")
                .output,
            "./my program,");
  EXPECT_EQ(WEXITSTATUS(shell_run("$RETINUE completion csh").status), 2);
}

TEST_F(RunJob, CompletesFlagsInFish) {
  if (shell_run("fish -c true").status != 0) GTEST_SKIP() << "fish is missing";
  const auto completed = [](const std::string& line) {
    return shell_run("HOME=$FOLDER fish -c '$RETINUE completion fish | source; complete -C \"" + line + "\"' | cut -f1")
        .output;
  };
  EXPECT_EQ(completed("retinue ru"), "run\n");
  EXPECT_EQ(completed("retinue run --max-r"), "--max-restarts\n");
  EXPECT_EQ(completed("retinue run -n 2 --no-python --max-r"), "--max-restarts\n");
  EXPECT_EQ(completed("retinue run --numa-binding so"), "socket\n");
  EXPECT_EQ(completed("retinue run -n 2 x --max-r"), "") << "all after the program is the program's";
  EXPECT_EQ(completed("retinue ps --js"), "--json\n");
  EXPECT_EQ(shell_run("$RETINUE completion fish > $FOLDER/script; fish --no-execute $FOLDER/script").output, "");
}

/// The long name of the flag that a line of --help is about; empty if it is about none.
std::string flag_of(const std::string& line) {
  const std::size_t first = line.find_first_not_of(' ');
  if (first == 0 || first == std::string::npos || line[first] != '-') return "";
  const std::size_t name = line.find("--", first);
  if (name != first && name != first + std::string("-n,").size()) return "";
  const std::size_t end = line.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", name + 2);
  return line.substr(name + 2, end - name - 2);
}

std::set<std::string> flags_of_run() {
  std::istringstream help(shell_run("$RETINUE run --help").output);
  std::set<std::string> flags;
  for (std::string line; std::getline(help, line);)
    if (const std::string flag = flag_of(line); !flag.empty()) flags.insert(flag);
  EXPECT_GT(flags.size(), 30u);
  return flags;
}

TEST_F(RunJob, ShareFilesHaveAManualPageOfEachCommand) {
  ASSERT_EQ(shell_run("$RETINUE --write-share-files $FOLDER/share").output, "");
  std::istringstream help(shell_run("$RETINUE --help | sed '1,/Subcommands/d'").output);
  int commands = 0;
  for (std::string name, rest; help >> name && std::getline(help, rest); ++commands) {
    const std::string page = shell_run("cat $FOLDER/share/man/man1/retinue-" + name + ".1").output;
    EXPECT_TRUE(contains(page, ".SH NAME\nretinue\\-" + name + " \\- ")) << name << ": " << page;
  }
  EXPECT_GE(commands, 9);
  for (const std::string& name : flags_of_run())
    EXPECT_TRUE(contains(shell_run("sed 's/\\\\-/-/g' $FOLDER/share/man/man1/retinue-run.1").output, "--" + name))
        << name;
  EXPECT_EQ(shell_run("$RETINUE completion fish | cmp - $FOLDER/share/fish/vendor_completions.d/retinue.fish").output,
            "");
  EXPECT_TRUE(contains(shell_run("$RETINUE --write-share-files /dev/null/share").output, "can't make /dev/null/share"));
  if (shell_run("man --version").status != 0) GTEST_SKIP() << "man is missing: nothing reads the pages";
  EXPECT_EQ(
      shell_run("cd $FOLDER/share/man/man1; for page in *; do MANWIDTH=100 man --warnings -l $page; done > /dev/null")
          .output,
      "");
}

TEST_F(RunJob, EachShellKnowsEachFlag) {
  const std::set<std::string> flags = flags_of_run();
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const std::string script = shell_run("$RETINUE completion " + shell).output;
    for (const std::string& name : flags)
      EXPECT_TRUE(contains(script, (shell == "fish" ? "-l " : "--") + name)) << shell << ": " << name;
  }
  if (shell_run("zsh -fc true").status != 0) GTEST_SKIP() << "zsh is missing: its script's grammar is not looked at";
  EXPECT_EQ(shell_run("$RETINUE completion zsh > $FOLDER/script; zsh -n $FOLDER/script").output, "");
}

/// `new` and `old` are what confined_program takes for Docker's default profile of today and of Linux 5.10.
class ConfinedRun : public testing::TestWithParam<std::string> {
 protected:
  static Result run(const std::string& command) {
    // A check for leaks, under AddressSanitizer, is one of the things that the profiles refuse.
    return shell_run("ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 " RETINUE_BIN_DIR "/confined_program " + GetParam() +
                     " " + command);
  }
};

TEST_P(ConfinedRun, StartsWatchesAndEndsRanks) {
  Result result = run("$RETINUE run -n 2 sh -c 'echo rank $RANK'");
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_TRUE(contains(result.output, "rank 1\n")) << result.output;
  result = run("$RETINUE run -n 2 --numa-binding node -t 3 sh -c 'test $RANK = 0 && exec sleep 1000; exit 7'");
  EXPECT_EQ(WEXITSTATUS(result.status), 7) << result.output;
  EXPECT_TRUE(contains(result.output, "rank 0 (pid ")) << result.output;
}

TEST_P(ConfinedRun, ReportsARanksExceptionWithItsStack) {
  const Result result = run(RETINUE_BIN_DIR "/error_file_program 'uncaught rank'");
  EXPECT_TRUE(contains(result.output, "raised std::out_of_range: the rank's failure")) << result.output;
  EXPECT_TRUE(contains(result.output, "fail_in_rank")) << result.output;
}

INSTANTIATE_TEST_SUITE_P(Profiles, ConfinedRun, testing::Values("new", "old"),
                         [](const auto& info) { return info.param; });

}  // namespace
