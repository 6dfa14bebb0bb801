#include "process/trace/pickle.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

namespace retinue {
namespace {

/// What Python makes of it.
std::string as_python_sees(const std::string& pickled) {
  const std::string path = testing::TempDir() + "/pickle_of_test_" + std::to_string(getpid());
  std::ofstream(path, std::ios::binary) << pickled;
  const std::string command = "python3 -c 'import pickle; print(pickle.load(open(\"" + path + "\", \"rb\")))' 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  char buffer[4096];
  while (const std::size_t bytes = fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, bytes);
  pclose(pipe);
  std::remove(path.c_str());
  return text;
}

TEST(Pickle, IsReadByPython) {
  if (std::system("python3 --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3";
  Pickle pickle;
  pickle.open_dict().text("numbers").open_list().number(0).number(-7).number(1 << 30);
  pickle.number(std::numeric_limits<std::int64_t>::max()).number(std::numeric_limits<std::int64_t>::min()).close_list();
  pickle.text("pair").open_tuple().text("numbers").real(0.5).close_tuple();
  pickle.text("none").none().text("truth").open_list().truth(1).truth(0).close_list();
  pickle.text("empty").open_list().open_list().close_list().open_dict().close_dict().close_list().close_dict();
  EXPECT_EQ(as_python_sees(std::move(pickle).take()),
            "{'numbers': [0, -7, 1073741824, 9223372036854775807, -9223372036854775808], 'pair': ('numbers', 0.5), "
            "'none': None, 'truth': [True, False], 'empty': [[], {}]}\n");
}

TEST(Pickle, KeepsTextsThatComeAgainOnce) {
  if (std::system("python3 --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3";
  Pickle pickle;
  std::string expected;
  pickle.open_list();
  for (int i = 0; i < 600; ++i) {
    const std::string text = "a text of some length " + std::to_string(i % 300);
    pickle.text(text);
    expected += (i == 0 ? "['" : ", '") + text + "'";
  }
  const std::string bytes = std::move(pickle.close_list()).take();
  EXPECT_LT(bytes.size(), 300u * 45);
  EXPECT_EQ(as_python_sees(bytes), expected + "]\n");
}

TEST(Pickle, TakesTextsThatAreNoUtf8) {
  if (std::system("python3 --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3";
  Pickle pickle;
  pickle.open_list().text("a\xff\xfe").text("\xc3\xa4").close_list();
  const std::string seen = as_python_sees(std::move(pickle).take());
  EXPECT_TRUE(seen.starts_with("['a")) << seen;
}

}  // namespace
}  // namespace retinue
