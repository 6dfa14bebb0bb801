#include "os/process/loaded_objects.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>

namespace retinue::test {
namespace {

void here() {}

TEST(LoadedObjects, NamesAPlaceInCode) {
  const auto address = reinterpret_cast<std::uintptr_t>(&here);
  const auto place = place_of_code(address);
  ASSERT_TRUE(place);
  EXPECT_FALSE(place->object_id.empty());
  EXPECT_EQ(place->object_path, std::filesystem::read_symlink("/proc/self/exe"));
  EXPECT_LT(place->offset, address);
  EXPECT_EQ(address_of_code(place->object_id, place->offset), address);
  const auto other = place_of_code(reinterpret_cast<std::uintptr_t>(&std::abort));
  ASSERT_TRUE(other);
  EXPECT_NE(other->object_id, place->object_id);
}

TEST(LoadedObjects, KnowsNothingOfWhatIsNotThere) {
  const auto on_heap = std::make_unique<int>();
  EXPECT_FALSE(place_of_code(reinterpret_cast<std::uintptr_t>(on_heap.get())));
  EXPECT_FALSE(address_of_code("no such id", 0));
}

}  // namespace
}  // namespace retinue::test
