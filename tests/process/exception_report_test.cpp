#include "process/crash/exception_report.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "process/crash_child.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

int throw_line = 0;

[[gnu::noinline]] void throw_here(int depth) {
  if (depth > 0) {
    throw_here(depth - 1);
    asm volatile("");  // No tail call: the frame must stay.
    return;
  }
  throw_line = __LINE__ + 1;
  throw std::runtime_error("the loss is nan");
}

[[gnu::noinline]] void train_for_test() {
  throw_here(2);
  asm volatile("");
}

TEST(ExceptionReport, NamesTypeMessageAndLineOfTheThrow) {
  try {
    throw_here(0);
  } catch (const std::runtime_error&) {
  }
  const CrashChild child([](CrashRecord& record) { run_guarded(record, train_for_test); });
  ASSERT_TRUE(child.is_complete());
  EXPECT_EQ(child.record().kind, CrashKind::kException);
  EXPECT_STREQ(child.record().type, "std::runtime_error");
  EXPECT_STREQ(child.record().message, "the loss is nan");
  EXPECT_EQ(child.record().consequence, 0u);
  EXPECT_GT(child.record().time_ns, 0u);
  const std::string stack = child.stack();
  EXPECT_TRUE(contains(line_of_stack(stack, 0), "throw_here(int)")) << stack;
  EXPECT_TRUE(contains(line_of_stack(stack, 0), place(__FILE__, throw_line)));
  EXPECT_TRUE(contains(stack, "train_for_test()"));
}

[[gnu::noinline]] void throw_from_library(const std::vector<int>& values) {
  static_cast<void>(values.at(values.size() + 7));
  asm volatile("");
}

TEST(ExceptionReport, SeesAThrowInsideASharedLibrary) {
  const CrashChild child([](CrashRecord& record) { run_guarded(record, [] { throw_from_library({1, 2, 3}); }); });
  ASSERT_TRUE(child.is_complete());
  EXPECT_STREQ(child.record().type, "std::out_of_range");
  bool is_library_on_stack = false;
  for (std::uint32_t i = 0; i < child.record().object_count; ++i) {
    const std::string path = child.record().objects[i].path;
    is_library_on_stack |= path.find("libstdc++.so") != std::string::npos;
  }
  EXPECT_TRUE(is_library_on_stack) << "the exception was not thrown by the shared library";
  EXPECT_TRUE(contains(child.stack(), "throw_from_library"));
}

TEST(ExceptionReport, GivesTheTypeOfWhatIsNoStandardException) {
  const CrashChild child([](CrashRecord& record) { run_guarded(record, [] { throw 42; }); });
  ASSERT_TRUE(child.is_complete());
  EXPECT_STREQ(child.record().type, "int");
  EXPECT_STREQ(child.record().message, "42");
  EXPECT_GT(child.record().frame_count, 0u);
}

[[gnu::noinline]] void load_for_test() {
  try {
    throw_here(0);
  } catch (...) {
    std::throw_with_nested(std::logic_error("cannot load the batch"));
  }
}

TEST(ExceptionReport, TellsNestedExceptionsAndShowsTheInnermostThrow) {
  const CrashChild child([](CrashRecord& record) { run_guarded(record, load_for_test); });
  ASSERT_TRUE(child.is_complete());
  EXPECT_STREQ(child.record().type, "std::logic_error");
  EXPECT_STREQ(child.record().message, "cannot load the batch\ncaused by std::runtime_error: the loss is nan");
  const std::string stack = child.stack();
  EXPECT_TRUE(contains(line_of_stack(stack, 0), "throw_here(int)"));
  EXPECT_TRUE(contains(stack, "load_for_test()"));
}

TEST(ExceptionReport, KeepsTheStackOfTheFirstThrowAcrossARethrow) {
  const CrashChild child([](CrashRecord& record) {
    run_guarded(record, [] {
      try {
        throw_here(1);
      } catch (...) {
        throw;
      }
    });
  });
  ASSERT_TRUE(child.is_complete());
  EXPECT_TRUE(contains(line_of_stack(child.stack(), 0), "throw_here(int)"));
}

TEST(ExceptionReport, FindsTheThrowOfAnotherThread) {
  const CrashChild child([](CrashRecord& record) {
    std::exception_ptr carried;
    std::thread worker([&carried] {
      try {
        throw_here(1);
      } catch (...) {
        carried = std::current_exception();
      }
    });
    worker.join();
    run_guarded(record, [&carried] { std::rethrow_exception(carried); });
  });
  ASSERT_TRUE(child.is_complete());
  EXPECT_TRUE(contains(line_of_stack(child.stack(), 0), "throw_here(int)"));
}

TEST(ExceptionReport, IsNotDisplacedByThrowsThatWereCaught) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer's quarantine gives every exception an address of its own";
#endif
  const CrashChild child([](CrashRecord& record) {
    run_guarded(record, [] {
      try {
        throw_here(1);
      } catch (...) {
        for (int i = 0; i < 1000; ++i) {
          try {
            throw std::invalid_argument("used as control flow");
          } catch (const std::invalid_argument&) {
          }
        }
        throw;
      }
    });
  });
  ASSERT_TRUE(child.is_complete());
  EXPECT_STREQ(child.record().type, "std::runtime_error");
  EXPECT_TRUE(contains(line_of_stack(child.stack(), 0), "throw_here(int)"));
}

class DerivedPeerLost : public PeerLost {
 public:
  using PeerLost::PeerLost;
};

TEST(ExceptionReport, CallsALostPeerAConsequence) {
  const CrashChild plain(
      [](CrashRecord& record) { run_guarded(record, [] { throw PeerLost("rank 1 is gone", {1}); }); });
  EXPECT_EQ(plain.record().consequence, 1u);
  const CrashChild derived(
      [](CrashRecord& record) { run_guarded(record, [] { throw DerivedPeerLost("rank 1 is gone", {1}); }); });
  EXPECT_EQ(derived.record().consequence, 1u);
  const CrashChild wrapped([](CrashRecord& record) {
    run_guarded(record, [] {
      try {
        throw PeerLost("rank 1 is gone", {1});
      } catch (...) {
        std::throw_with_nested(std::runtime_error("step 7 failed"));
      }
    });
  });
  EXPECT_EQ(wrapped.record().consequence, 1u);
}

TEST(ExceptionReport, LeavesOutTheStackThatAMessageBrings) {
  const CrashChild child([](CrashRecord& record) {
    run_guarded(record, [] {
      throw std::runtime_error(
          "shapes differ\nException raised from meta at a.cpp:2 (most recent call first):\nframe #0: f");
    });
  });
  EXPECT_STREQ(child.record().message, "shapes differ\nException raised from meta at a.cpp:2");
}

TEST(ExceptionReport, CutsWhatDoesNotFit) {
  const CrashChild child(
      [](CrashRecord& record) { run_guarded(record, [] { throw std::runtime_error(std::string(100'000, 'x')); }); });
  ASSERT_TRUE(child.is_complete());
  EXPECT_EQ(std::string(child.record().message), std::string(sizeof(CrashRecord::message) - 1, 'x'));
}

TEST(ExceptionReport, KeepsTheFirstOfTwoCrashes) {
  const auto record = std::make_unique<CrashRecord>();
  run_guarded(*record, [] { throw std::runtime_error("first"); });
  run_guarded(*record, [] { throw std::runtime_error("second"); });
  EXPECT_STREQ(record->message, "first");
}

}  // namespace
}  // namespace retinue
