#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "fuzz/targets.h"
#include "support/paths.h"

namespace retinue::fuzz {

/// What fuzzers found, and what they began with, once through each target: so it is in every build.
class Corpus : public testing::TestWithParam<Target> {};

TEST_P(Corpus, IsDecodedOrRefused) {
  int inputs = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(std::string(RETINUE_SOURCE_DIR "/tests/fuzz/corpus/") + GetParam().name)) {
    SCOPED_TRACE(file.path().string());
    std::ifstream stream(file.path(), std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(stream), {}};
    EXPECT_NO_THROW(GetParam().run(std::as_bytes(std::span(input))));
    ++inputs;
  }
  EXPECT_GT(inputs, 0);
}

/// Bytes by chance, and the corpus's neighbours, the same in each run.
TEST_P(Corpus, TakesWhateverComes) {
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    std::string input(random() % 300, '\0');
    for (char& byte : input) byte = static_cast<char>(random() % (i % 2 == 0 ? 256 : 6));
    EXPECT_NO_THROW(GetParam().run(std::as_bytes(std::span(input)))) << i;
  }
}

inline std::string name_of_target(const testing::TestParamInfo<Target>& info) {
  return info.param.name;
}

}  // namespace retinue::fuzz
