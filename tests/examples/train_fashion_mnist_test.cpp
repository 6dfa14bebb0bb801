#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "examples/fashion_mnist_files.h"
#include "support/paths.h"

namespace {

namespace fs = std::filesystem;

using namespace retinue::test;  // NOLINT(google-build-using-namespace): of the files' names and makers.

struct Outcome {
  int exit_code;
  std::string output;  ///< Standard output and standard error.

  std::string last_line() const {
    const std::size_t end = output.find_last_not_of('\n');
    if (end == std::string::npos) return "";
    const std::size_t before = output.rfind('\n', end);
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    return output.substr(begin, end + 1 - begin);
  }
};

Outcome run(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "re");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  std::string output;
  std::array<char, 4096> text;
  for (std::size_t got; (got = std::fread(text.data(), 1, text.size(), pipe)) > 0;) output.append(text.data(), got);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

class TrainFashionMnist : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "retinue-fashion-mnist-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    write_fashion_mnist(folder_, 600, 101);
  }

  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  fs::path checkpoint() const { return folder_ / "models" / "net.pt"; }

  std::string command(const std::string& flags) const {
    // One thread a rank: threads that share a CPU with other tests wait for each other in every operation.
    return fmt::format("OMP_NUM_THREADS=1 " RETINUE_BIN_DIR "/train_fashion_mnist --data '{}' --checkpoint '{}' {}",
                       folder_.string(), checkpoint().string(), flags);
  }

  /// The program refuses the data in one line that names `file`.
  void expect_refused(const char* file, const char* reason) {
    for (const char* nprocs : {"--nprocs 1", "--nprocs 2"}) {
      const Outcome outcome = run(command(nprocs));
      EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
      EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
      EXPECT_NE(outcome.output.find((folder_ / file).string()), std::string::npos) << outcome.output;
      EXPECT_NE(outcome.output.find(reason), std::string::npos) << outcome.output;
      EXPECT_FALSE(fs::exists(checkpoint()));
    }
  }

  /// It learns the bands well, says so in its last line, and leaves a checkpoint and nothing else.
  void expect_trained(const Outcome& outcome, int ranks) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    const std::regex wanted(fmt::format(
        "demo: ok accuracy=(0\\.9|1\\.0)[0-9]{{3}} ranks={} images_per_s=[1-9][0-9]* params_equal=yes", ranks));
    EXPECT_TRUE(std::regex_match(outcome.last_line(), wanted)) << outcome.output;
    EXPECT_TRUE(fs::is_regular_file(checkpoint()));
    EXPECT_EQ(std::distance(fs::directory_iterator(checkpoint().parent_path()), fs::directory_iterator()), 1);
  }

  fs::path folder_;
};

constexpr const char* kShort = "--epochs 8 --batch-size 10 --lr 0.02";

TEST_F(TrainFashionMnist, TwoRanks) {
  expect_trained(run(command(std::string("--nprocs 2 ") + kShort)), 2);
}

TEST_F(TrainFashionMnist, OneRank) {
  expect_trained(run(command(std::string("--nprocs 1 ") + kShort)), 1);
}

TEST_F(TrainFashionMnist, UnevenRanks) {
  expect_trained(run(command(std::string("--nprocs 3 ") + kShort)), 3);
}

TEST_F(TrainFashionMnist, UnderTheCommand) {
  expect_trained(run(RETINUE_BIN_DIR "/retinue run -n 2 env " + command(kShort)), 2);
}

TEST_F(TrainFashionMnist, SameSeedSameResult) {
  const auto checkpoint_of = [&](int seed) {
    EXPECT_EQ(run(command(fmt::format("{} --seed {}", kShort, seed))).exit_code, 0);
    std::ifstream file(checkpoint(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string first = checkpoint_of(1);
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(first, checkpoint_of(1));
  EXPECT_NE(first, checkpoint_of(2));
}

TEST_F(TrainFashionMnist, LowAccuracyFails) {
  // Wrong labels in the test data: what is learned cannot hold there.
  std::string labels = labels_file(101);
  for (std::size_t i = 8; i < labels.size(); ++i) labels[i] = static_cast<char>((labels[i] + 1) % 10);
  write_gzipped(folder_ / kTestLabels, labels);
  const Outcome outcome = run(command(kShort));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  EXPECT_NE(outcome.output.find("is below 0.8800"), std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.find("demo: ok"), std::string::npos) << outcome.output;
  EXPECT_FALSE(fs::exists(checkpoint()));
}

TEST_F(TrainFashionMnist, MissingFile) {
  fs::remove(folder_ / kTestImages);
  expect_refused(kTestImages, "is missing");
}

TEST_F(TrainFashionMnist, MissingFolderFromEnvironment) {
  const Outcome outcome = run("RETINUE_DATA=/nowhere/at/all " RETINUE_BIN_DIR "/train_fashion_mnist");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.output.find("/nowhere/at/all is missing"), std::string::npos) << outcome.output;
}

TEST_F(TrainFashionMnist, TruncatedFile) {
  fs::resize_file(folder_ / kTrainImages, fs::file_size(folder_ / kTrainImages) / 2);
  expect_refused(kTrainImages, "is truncated");
}

TEST_F(TrainFashionMnist, TruncatedContent) {
  std::string images = images_file(600);
  images.resize(images.size() - 1);
  write_gzipped(folder_ / kTrainImages, images);
  expect_refused(kTrainImages, "is truncated");
}

TEST_F(TrainFashionMnist, EmptyFile) {
  std::ofstream(folder_ / kTestLabels, std::ios::trunc);
  expect_refused(kTestLabels, "is truncated");
}

TEST_F(TrainFashionMnist, DamagedFile) {
  std::fstream file(folder_ / kTrainImages, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(folder_ / kTrainImages) / 2));
  file << std::string(64, '\xff');
  file.close();
  expect_refused(kTrainImages, "is damaged");
}

TEST_F(TrainFashionMnist, ForeignFile) {
  std::ofstream(folder_ / kTrainLabels, std::ios::trunc) << "a letter to somebody, not labels at all\n";
  expect_refused(kTrainLabels, "is not an IDX file");
}

TEST_F(TrainFashionMnist, LabelsInPlaceOfImages) {
  fs::copy_file(folder_ / kTrainLabels, folder_ / kTrainImages, fs::copy_options::overwrite_existing);
  expect_refused(kTrainImages, "has items of other sizes");
}

TEST_F(TrainFashionMnist, LongerThanItsHeaderSays) {
  write_gzipped(folder_ / kTrainImages, images_file(600) + "x");
  expect_refused(kTrainImages, "longer than its header says");
}

TEST_F(TrainFashionMnist, FewerLabelsThanImages) {
  write_gzipped(folder_ / kTestLabels, labels_file(100));
  expect_refused(kTestLabels, "holds 100 labels, but there are 101 images");
}

TEST_F(TrainFashionMnist, UnknownClass) {
  std::string labels = labels_file(600);
  labels.back() = 10;
  write_gzipped(folder_ / kTrainLabels, labels);
  expect_refused(kTrainLabels, "class 10");
}

}  // namespace
