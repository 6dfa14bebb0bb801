#include "process/symbolizer.h"

#include <gnu/libc-version.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "process/crash_child.h"
#include "process/stack_capture.h"

namespace retinue {
namespace {

void set_object(CrashRecord& record, std::uint32_t index, const char* path) {
  std::strncpy(record.objects[index].path, path, sizeof record.objects[index].path - 1);
  record.object_count = index + 1;
}

TEST(Symbolizer, GivesNothingForAnEmptyRecord) {
  const auto record = std::make_unique<CrashRecord>();
  EXPECT_EQ(Symbolizer().symbolize(*record), "");
}

TEST(Symbolizer, GivesObjectAndOffsetWithoutTheFile) {
  const auto record = std::make_unique<CrashRecord>();
  set_object(*record, 0, "/nowhere/libgone.so");
  record->frames[0] = {.offset = 0x1234, .object = 0};
  record->frames[1] = {.offset = 0xbeef, .object = CrashRecord::kNoObject};
  record->frame_count = 2;
  EXPECT_EQ(Symbolizer().symbolize(*record), "#0 libgone.so+0x1234\n#1 0xbeef\n");
}

TEST(Symbolizer, GivesObjectAndOffsetForAFileThatIsNoObject) {
  const auto record = std::make_unique<CrashRecord>();
  set_object(*record, 0, "/proc/self/status");
  record->frames[0] = {.offset = 0x1234, .object = 0};
  record->frame_count = 1;
  EXPECT_EQ(Symbolizer().symbolize(*record), "#0 status+0x1234\n");
}

TEST(Symbolizer, SurvivesARecordOfGarbage) {
  const auto record = std::make_unique<CrashRecord>();
  std::memset(static_cast<void*>(record.get()), 0xee, sizeof *record);
  EXPECT_NE(Symbolizer().symbolize(*record), "");
}

TEST(Symbolizer, NamesWhatASharedLibraryExports) {
  const CrashChild child([](CrashRecord& record) {
    RawStack stack;
    stack.inner[stack.inner_count++] = reinterpret_cast<std::uintptr_t>(&gnu_get_libc_version) + 1;
    write_frames(stack, record);
  });
  EXPECT_TRUE(contains(child.stack(), "gnu_get_libc_version")) << child.record().objects[0].path;
  EXPECT_TRUE(contains(child.stack(), "libc.so.6+0x"));
}

[[gnu::always_inline]] inline void throw_inlined() {
  throw std::runtime_error("inlined");
}

[[gnu::noinline]] void call_inlined() {
  throw_inlined();
}

TEST(Symbolizer, ShowsInlinedFunctionsAsFramesOfTheirOwn) {
  const CrashChild child([](CrashRecord& record) { run_guarded(record, call_inlined); });
  ASSERT_TRUE(child.is_complete());
  const std::string stack = child.stack();
  EXPECT_TRUE(contains(line_of_stack(stack, 0), "throw_inlined"));
  EXPECT_TRUE(contains(line_of_stack(stack, 1), "call_inlined"));
  EXPECT_TRUE(contains(line_of_stack(stack, 1), "at symbolizer_test.cpp:")) << stack;
}

}  // namespace
}  // namespace retinue
