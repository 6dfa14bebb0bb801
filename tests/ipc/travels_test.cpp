// Which types may go to another process, and that those that do arrive.
#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "retinue/ipc/archive.h"
#include "retinue/ipc/detail/message_codec.h"
#include "retinue/ipc/queue.h"
#include "support/job_test.h"

namespace retinue::detail {
namespace {

struct Point {
  double x = 0;
  int index = 0;
  std::array<float, 3> colour{};
  bool operator==(const Point&) const = default;
};

/// Says itself how it is archived, and then is.
struct Doubled {
  int value = 0;

  template <class Archive>
  void save(Archive& archive) const {
    archive(2 * value);
  }
  template <class Archive>
  void load(Archive& archive) {
    archive(value);
  }
};

struct WithoutDefault {
  explicit WithoutDefault(int number) : value(number) {}
  int value;
};

struct OnlySaved {
  std::string text;

  template <class Archive>
  void save(Archive& archive) const {
    archive(text);
  }
};

struct Silent {
  std::string text;
};

struct Empty {};
enum class Colour : std::uint8_t { kRed };

static_assert(kTravels<int> && kTravels<bool> && kTravels<Colour> && kTravels<Empty> && kTravels<Point> &&
              kTravels<Doubled> && kTravels<std::bitset<70>> && kTravels<std::chrono::nanoseconds>);
static_assert(kTravels<std::string> && kTravels<std::vector<Point>> && kTravels<std::map<std::string, Point>> &&
              kTravels<std::array<Point, 3>> && kTravels<std::optional<Point>> && kTravels<std::tuple<int, Point>> &&
              kTravels<Queue<Point>>);
static_assert(!kTravels<int*> && !kTravels<void (*)()> && !kTravels<int Point::*> && !kTravels<std::string_view> &&
              !kTravels<std::span<int>> && !kTravels<std::span<const int>> && !kTravels<std::reference_wrapper<int>> &&
              !kTravels<std::array<int*, 2>> && !kTravels<std::optional<std::string_view>>);
static_assert(!kTravels<WithoutDefault> && !kTravels<OnlySaved> && !kTravels<Silent> &&
              !kTravels<std::unique_ptr<int>>);

template <class T>
T through_archive(const T& value) {
  const Encoded encoded = encode_value(value);
  T back{};
  decode_value(encoded.bytes, back);
  return back;
}

TEST(Travels, PlainStructsAloneAndInContainers) {
  const Point point{0.5, 7, {1, 2, 3}};
  EXPECT_EQ(through_archive(point), point);
  const std::map<std::string, std::vector<Point>> many = {{"a", {point, Point()}}, {"b", {}}};
  EXPECT_EQ(through_archive(many), many);
  const std::tuple<int, std::optional<Point>> maybe{3, point};
  EXPECT_EQ(through_archive(maybe), maybe);
  const std::bitset<70> bits(0x5a5a);
  EXPECT_EQ(through_archive(bits), bits);
}

TEST(Travels, TypesThatSayHowAreAskedInArchives) {
  EXPECT_EQ(through_archive(Doubled{4}).value, 8);
  EXPECT_EQ(through_archive(std::vector<Doubled>{{1}, {2}}).at(1).value, 4);
}

TEST(Travels, APlainStructThatEndsTooEarlyIsRefused) {
  Point point;
  EXPECT_THROW(decode_value("short", point), cereal::Exception);
}

constexpr std::size_t kRow = std::size_t{1} << 16;  // Of int: long enough for a block of its own.

std::vector<int> row_from(int first) {
  std::vector<int> row(kRow);
  std::iota(row.begin(), row.end(), first);
  return row;
}

class LongRows : public retinue::test::JobTest {
 protected:
  /// 1, a row, 2, a row, a row, 3.
  static Encoded three_rows() {
    ValueOutput output(Purpose::kCall);
    output(std::int8_t{1}, row_from(10), std::int8_t{2}, row_from(20), row_from(30), std::int8_t{3});
    return std::move(output).take();
  }
};

TEST_F(LongRows, HaveBlocksOfTheirOwn) {
  const Encoded encoded = three_rows();
  EXPECT_EQ(encoded.references.size(), 3u);
  EXPECT_LT(encoded.bytes.size(), 256u);
  ValueInput input(encoded.bytes, Purpose::kCall);
  std::int8_t one = 0;
  std::int8_t two = 0;
  std::int8_t three = 0;
  std::vector<int> first;
  std::uint64_t count = 0;
  std::vector<int> last;
  input(one, first, two, count);
  const std::span<const int> second = input.read_row<int>(count);
  input(last, three);
  EXPECT_EQ(first, row_from(10));
  EXPECT_EQ(std::vector<int>(second.begin(), second.end()), row_from(20));
  EXPECT_EQ(second.data(), reinterpret_cast<const int*>(encoded.references[1].data()));
  EXPECT_EQ(last, row_from(30));
  EXPECT_EQ((std::vector{one, two, three}), (std::vector<std::int8_t>{1, 2, 3}));
  EXPECT_THROW(input(one), cereal::Exception);
}

TEST_F(LongRows, AreReadInOtherPartsThanTheyWereWritten) {
  const Encoded encoded = three_rows();
  ValueInput input(encoded.bytes, Purpose::kCall);
  std::string all(3 + 3 * (sizeof(std::uint64_t) + kRow * sizeof(int)), '?');
  constexpr std::size_t kPart = 1000;
  for (std::size_t at = 0; at < all.size(); at += kPart) input.read(&all[at], std::min(kPart, all.size() - at));
  ValueOutput flat;
  flat(std::int8_t{1}, row_from(10), std::int8_t{2}, row_from(20), row_from(30), std::int8_t{3});
  EXPECT_EQ(all, std::move(flat).take().bytes);
}

TEST_F(LongRows, AreCopiedIfTheyBeginElsewhere) {
  const Encoded encoded = three_rows();
  ValueInput input(encoded.bytes, Purpose::kCall);
  std::int8_t one = 0;
  std::uint64_t count = 0;
  int number = 0;
  input(one, count, number);
  const std::span<const int> rest = input.read_row<int>(kRow - 1);
  EXPECT_EQ(number, 10);
  EXPECT_EQ(rest.front(), 11);
  EXPECT_EQ(rest.back(), row_from(10).back());
}

TEST_F(LongRows, WithWrongTablesAreRefused) {
  const std::string bytes = three_rows().bytes;  // Their blocks are gone.
  EXPECT_THROW(ValueInput(bytes, Purpose::kCall), UsageError);
  const Encoded encoded = three_rows();
  for (std::size_t cut = 1; cut < encoded.bytes.size(); ++cut) {
    std::vector<int> first;
    std::int8_t one = 0;
    try {
      ValueInput input(std::string_view(encoded.bytes).substr(cut), Purpose::kCall);
      input(one, first);
    } catch (const cereal::Exception&) {
    } catch (const UsageError&) {
    }
  }
  std::string swapped = encoded.bytes;
  const std::size_t table = swapped.size() - sizeof(std::uint32_t) - 3 * sizeof(RowBlock);
  std::swap_ranges(swapped.begin() + static_cast<std::ptrdiff_t>(table),
                   swapped.begin() + static_cast<std::ptrdiff_t>(table + sizeof(RowBlock)),
                   swapped.begin() + static_cast<std::ptrdiff_t>(table + sizeof(RowBlock)));
  EXPECT_THROW(ValueInput(swapped, Purpose::kCall), cereal::Exception);
}

TEST(LongRowsWithoutAJob, LieAmongTheRest) {
  ValueOutput output(Purpose::kCall);
  output(row_from(5));
  const Encoded encoded = std::move(output).take();
  EXPECT_TRUE(encoded.references.empty());
  std::vector<int> row;
  ValueInput(encoded.bytes, Purpose::kCall)(row);
  EXPECT_EQ(row, row_from(5));
}

}  // namespace
}  // namespace retinue::detail
