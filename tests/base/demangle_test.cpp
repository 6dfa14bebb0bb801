#include "base/demangle.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace retinue {
namespace {

struct Sample {};

TEST(TypeName, IsAsPeopleDeclareTheType) {
  EXPECT_EQ(type_name(typeid(int).name()), "int");
  EXPECT_EQ(type_name(typeid(std::string).name()), "std::string");
  EXPECT_EQ(type_name(typeid(std::vector<std::string>).name()), "std::vector<std::string>");
  EXPECT_EQ((type_name(typeid(std::map<std::string, std::vector<double>>).name())),
            "std::map<std::string, std::vector<double>, std::less<std::string>>");
  EXPECT_EQ((type_name(typeid(std::pair<std::vector<int>, float>).name())), "std::pair<std::vector<int>, float>");
  EXPECT_EQ(type_name(typeid(std::function<void(int, std::vector<int>)>).name()),
            "std::function<void (int, std::vector<int>)>");
}

TEST(TypeName, KeepsWhatTheProgramChose) {
  EXPECT_EQ((type_name(typeid(std::map<int, int, std::greater<int>>).name())), "std::map<int, int, std::greater<int>>");
  EXPECT_EQ(type_name(typeid(Sample).name()), "retinue::(anonymous namespace)::Sample");
}

TEST(Demangled, IsTheNameItselfWhereThatIsNone) {
  EXPECT_EQ(demangled("main"), "main");
  EXPECT_EQ(demangled("_ZN7retinue7SessionD1Ev"), "retinue::Session::~Session()");
}

}  // namespace
}  // namespace retinue
