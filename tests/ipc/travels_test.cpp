// Which types may go to another process, and that those that do arrive.
#include <gtest/gtest.h>

#include <bitset>
#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "retinue/ipc/archive.h"
#include "retinue/ipc/message_codec.h"
#include "retinue/ipc/queue.h"

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

}  // namespace
}  // namespace retinue::detail
