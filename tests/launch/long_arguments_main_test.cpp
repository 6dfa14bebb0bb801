// Long rows of values as arguments and results: copied once into job memory, and read there where the type allows it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cereal/types/vector.hpp>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <ranges>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "retinue/ipc/job_memory.h"
#include "retinue/ipc/shared_block.h"
#include "retinue/launch/pool.h"
#include "retinue/launch/process.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"
#include "support/allocated.h"
#include "support/start_methods.h"

using retinue::JobMemory;
using retinue::RankContext;
using retinue::test::allocated;
using retinue::test::EachStartMethod;

namespace {

constexpr std::size_t kLong = std::size_t{1} << 20;

std::vector<double> numbers(std::size_t count, double first) {
  std::vector<double> row(count);
  std::iota(row.begin(), row.end(), first);
  return row;
}

bool are_numbers(std::span<const double> row, std::size_t count, double first) {
  if (row.size() != count) return false;
  for (std::size_t i = 0; i < count; ++i)
    if (row[i] != first + static_cast<double>(i)) return false;
  return true;
}

bool is_in_job_memory(std::span<const double> row) {
  return JobMemory::current()->contains(row.data(), row.size_bytes());
}

struct Seen {
  bool right = false;
  bool in_place = false;
  std::uint64_t allocated = 0;
};

Seen look_at_span(RankContext&, std::span<const double> row) {
  return {are_numbers(row, kLong, 1), is_in_job_memory(row), allocated()};
}

TEST_P(EachStartMethod, SpanIsReadWhereItLies) {
  const std::vector<double> row = numbers(kLong, 1);
  const std::size_t before = allocated();
  {
    auto ranks = retinue::spawn<look_at_span>({.nprocs = 3, .start_method = GetParam(), .join = false}, row);
    for (const auto& [rank, seen] : ranks.wait().values<Seen>()) {
      EXPECT_TRUE(seen.right);
      EXPECT_TRUE(seen.in_place);
      EXPECT_LT(seen.allocated, before + kLong * sizeof(double) * 3 / 2) << "it is there more than once";
    }
  }
  EXPECT_EQ(allocated(), before);
}

Seen look_at_vector(RankContext&, const std::vector<double>& row) {
  return {are_numbers(row, kLong, 2), is_in_job_memory(row), allocated()};
}

TEST_P(EachStartMethod, VectorIsThereOnce) {
  const std::vector<double> row = numbers(kLong, 2);
  const std::size_t before = allocated();
  auto ranks = retinue::spawn<look_at_vector>({.nprocs = 2, .start_method = GetParam(), .join = false}, row);
  for (const auto& [rank, seen] : ranks.wait().values<Seen>()) {
    EXPECT_TRUE(seen.right);
    EXPECT_FALSE(seen.in_place) << "a vector is the rank's own";
    EXPECT_LT(seen.allocated, before + kLong * sizeof(double) * 3 / 2);
  }
}

struct Halves {
  std::vector<double> row;

  template <class Archive>
  void save(Archive& archive) const {
    archive(static_cast<std::uint64_t>(row.size()));
    archive(cereal::binary_data(row.data(), row.size() * sizeof(double)));
  }
  template <class Archive>
  void load(Archive& archive) {
    std::uint64_t size = 0;
    archive(size);
    row.resize(size);
    const std::size_t half = size / 2;
    archive(cereal::binary_data(row.data(), half * sizeof(double)));
    archive(cereal::binary_data(row.data() + half, (size - half) * sizeof(double)));
  }
};

using Pieces = std::vector<std::vector<double>>;

std::string look_at_all(RankContext&, bool flag, std::span<const double> short_row, std::string_view text,
                        std::span<const double> long_row, const Pieces& pieces, const Halves& halves,
                        std::string_view long_text, std::span<const double> empty, char last) {
  if (!flag || last != 'z') return "flag or last";
  if (!are_numbers(short_row, 3, 7)) return "short row";
  if (reinterpret_cast<std::uintptr_t>(short_row.data()) % alignof(double) != 0) return "short row's alignment";
  if (text != "odd") return "text";
  if (!are_numbers(long_row, kLong + 1, 8) || !is_in_job_memory(long_row)) return "long row";
  if (pieces.size() != 3 || !are_numbers(pieces[0], kLong, 0) || !pieces[1].empty() ||
      !are_numbers(pieces[2], kLong, 9))
    return "pieces";
  if (!are_numbers(halves.row, kLong + 3, 10)) return "halves";
  if (long_text != std::string(kLong, 'x')) return "long text";
  return empty.empty() ? "all" : "empty";
}

TEST_P(EachStartMethod, LongAndShortArgumentsKeepTheirOrder) {
  const std::vector<double> long_row = numbers(kLong + 1, 8);
  auto ranks =
      retinue::spawn<look_at_all>({.nprocs = 2, .start_method = GetParam(), .join = false}, true, numbers(3, 7), "odd",
                                  std::span(long_row), Pieces{numbers(kLong, 0), {}, numbers(kLong, 9)},
                                  Halves{numbers(kLong + 3, 10)}, std::string(kLong, 'x'), std::vector<double>(), 'z');
  for (const auto& [rank, seen] : ranks.wait().values<std::string>()) EXPECT_EQ(seen, "all") << "rank " << rank;
}

TEST_P(EachStartMethod, EachRankGetsItsOwnSpan) {
  const std::vector<double> first = numbers(kLong, 1);
  const std::vector<double> second = numbers(kLong, 1);
  auto ranks = retinue::start_processes<look_at_span>({.start_method = GetParam()}, {{0, {first}}, {1, {second}}});
  for (const auto& [rank, seen] : ranks.wait().values<Seen>()) {
    EXPECT_TRUE(seen.right);
    EXPECT_TRUE(seen.in_place);
  }
}

INSTANTIATE_TEST_SUITE_P(Each, EachStartMethod, retinue::test::all_start_methods(), retinue::test::start_method_name);

std::vector<double> make_row(double first) {
  return numbers(kLong, first);
}

std::pair<std::vector<double>, double> first_and_row(RankContext& context) {
  return {make_row(context.rank()), context.rank()};
}

TEST(LongResult, IsReadInAForkToo) {
  const retinue::RunResult result = retinue::spawn<first_and_row>({.join = false}).wait();
  const pid_t child = fork();
  if (child == 0) {
    const auto value = result.value<std::pair<std::vector<double>, double>>(0);
    _exit(are_numbers(value.first, kLong, 0) ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(LongResult, OfRanks) {
  const std::size_t before = allocated();
  {
    auto ranks = retinue::spawn<first_and_row>({.nprocs = 2, .join = false});
    const retinue::RunResult result = ranks.wait();
    EXPECT_LT(allocated(), before + 2 * kLong * sizeof(double) * 3 / 2);
    for (const auto& [rank, value] : result.values<std::pair<std::vector<double>, double>>()) {
      EXPECT_TRUE(are_numbers(value.first, kLong, rank));
      EXPECT_EQ(value.second, rank);
    }
  }
  EXPECT_EQ(allocated(), before);
}

double sum_of(std::span<const double> row) {
  return is_in_job_memory(row) ? std::accumulate(row.begin(), row.end(), 0.0) : -1;
}

double first_of_two(std::span<const double> row, const std::vector<double>& other) {
  return row.front() + other.back();
}

TEST(LongArguments, OfTasks) {
  const std::vector<double> row = numbers(kLong, 0);
  const double sum = std::accumulate(row.begin(), row.end(), 0.0);
  const std::size_t before = allocated();
  {
    retinue::Pool pool({.processes = 2});
    EXPECT_EQ(pool.apply<sum_of>(row), sum);
    EXPECT_EQ(pool.map<sum_of>(std::vector{std::span(row).first(kLong), std::span(row).first(kLong)}),
              (std::vector{sum, sum}));
    EXPECT_EQ(pool.map<sum_of>(std::vector(3, row)), std::vector(3, sum));
    EXPECT_EQ(
        (pool.map<first_of_two>(std::vector<std::tuple<std::span<const double>, std::vector<double>>>(2, {row, row}))),
        std::vector(2, static_cast<double>(kLong - 1)));
    for (const double each : pool.imap<sum_of>(std::vector(3, row))) EXPECT_EQ(each, sum);
    EXPECT_TRUE(are_numbers(pool.apply<make_row>(5), kLong, 5));
    const auto rows = pool.map<make_row>(std::vector<double>{1, 2, 3});
    ASSERT_EQ(rows.size(), 3u);
    for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_TRUE(are_numbers(rows[i], kLong, static_cast<double>(i + 1)));
  }
  EXPECT_EQ(allocated(), before);
}

std::string twice(std::string_view text) {
  return std::string(text) + std::string(text);
}

std::string joined(const std::tuple<std::string_view, int>& item) {
  return std::string(std::get<0>(item)) + std::to_string(std::get<1>(item));
}

/// Items of ranges that make each in the place of the one before, or as a temporary.
TEST(LongArguments, OfItemsThatDoNotStay) {
  const auto made = std::views::iota(0, 20) |
                    std::views::transform([](int i) { return std::string(30, 'a') + static_cast<char>('a' + i); });
  std::vector<std::string> expected;
  for (const std::string& text : made) expected.push_back(text + text);
  retinue::Pool pool({.processes = 2});
  EXPECT_EQ(pool.map<twice>(made, {.chunk_size = 7}), expected);
  std::istringstream words("one two three four");
  std::vector<std::string> seen;
  for (const std::string& text : pool.imap<twice>(std::views::istream<std::string>(words), {.chunk_size = 3}))
    seen.push_back(text);
  EXPECT_EQ(seen, (std::vector<std::string>{"oneone", "twotwo", "threethree", "fourfour"}));
  std::istringstream more("five six seven");
  EXPECT_EQ(pool.map<twice>(std::views::counted(std::istream_iterator<std::string>(more), 3), {.chunk_size = 3}),
            (std::vector<std::string>{"fivefive", "sixsix", "sevenseven"}));
  const auto tuples = std::views::iota(0, 3) | std::views::transform([](int i) {
                        return std::tuple(std::string(40, static_cast<char>('x' + i)), i);
                      });
  EXPECT_EQ(
      pool.map<joined>(tuples, {.chunk_size = 3}),
      (std::vector<std::string>{std::string(40, 'x') + "0", std::string(40, 'y') + "1", std::string(40, 'z') + "2"}));
}

void exit_with_front(std::span<const double> row) {
  std::exit(static_cast<int>(row.front()));
}

TEST(LongArguments, OfAProcess) {
  retinue::Process<exit_with_front> process(numbers(kLong, 42));
  process.start();
  process.join();
  EXPECT_EQ(process.exitcode(), 42);
}

void take_two(RankContext&, std::span<const double>, std::span<const double>) {}

TEST(LongArguments, WithoutRoomLeaveNothing) {
  const std::size_t before = allocated();
  {
    constexpr std::size_t kBytes = kLong * sizeof(double);
    std::vector<retinue::SharedBlock> others = {retinue::SharedBlock::allocate(kBytes)};
    for (std::size_t bytes = 8 * kBytes; bytes >= kBytes / 2;) try {
        others.push_back(retinue::SharedBlock::allocate(bytes));
      } catch (const retinue::SharedMemoryExhausted&) {
        bytes /= 2;
      }
    others.erase(others.begin());
    const std::vector<double> row = numbers(kLong, 0);
    const std::size_t full = allocated();
    // The first fits, the second doesn't.
    EXPECT_THROW((retinue::spawn<take_two>({}, row, row)), retinue::SharedMemoryExhausted);
    EXPECT_EQ(allocated(), full);
    retinue::spawn<take_two>({}, row, std::span(row).first(1));
  }
  EXPECT_EQ(allocated(), before);
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv, {.job_memory = std::size_t{256} << 20});
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
