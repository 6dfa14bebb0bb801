#include "process/symbols/symbolizer.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "process/crash/stack_capture.h"
#include "process/crash_child.h"

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

constexpr int kLineOfOneOfTwo = __LINE__ + 1;
[[gnu::noinline]] void one_of_two() {
  asm volatile("nop");
}
[[gnu::noinline]] void other_of_two() {
  asm volatile("nop" ::: "memory");
}

/// Where the function lies in this program's file.
std::uint64_t offset_of(void (*function)()) {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(function), &info);
  return reinterpret_cast<std::uintptr_t>(function) - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
}

TEST(ObjectSymbols, FindsLinesWithoutATableOfUnits) {
  std::string path = testing::TempDir() + "without_aranges_XXXXXX";
  const int fd = mkstemp(path.data());
  ASSERT_GE(fd, 0);
  close(fd);
  const std::string remove = fmt::format("objcopy --remove-section=.debug_aranges /proc/{}/exe {}", getpid(), path);
  ASSERT_EQ(std::system(remove.c_str()), 0);
  const std::vector<SourceFrame> frames = ObjectSymbols(path).at(offset_of(&one_of_two));
  unlink(path.c_str());
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_TRUE(contains(frames[0].function, "one_of_two"));
  EXPECT_TRUE(contains(frames[0].file, "symbolizer_test.cpp"));
  EXPECT_NEAR(frames[0].line, kLineOfOneOfTwo, 1);  // Of the brace, or of what the function does.
}

TEST(SymbolTable, FindsManyAddressesInTheirOrder) {
  SymbolTable table("/proc/self/exe");
  const std::vector<std::uint64_t> addresses = {offset_of(&other_of_two), 0, offset_of(&one_of_two),
                                                offset_of(&other_of_two) + 1, ~std::uint64_t{0}};
  const std::vector<std::string> names = table.names_at(addresses);
  ASSERT_EQ(names.size(), addresses.size());
  EXPECT_TRUE(contains(names[0], "other_of_two"));
  EXPECT_EQ(names[1], "");
  EXPECT_TRUE(contains(names[2], "one_of_two"));
  EXPECT_EQ(names[3], names[0]);
  EXPECT_EQ(names[4], "");
}

TEST(SymbolTable, FindsWhatAStrippedLibraryExports) {
  Dl_info info{};
  ASSERT_NE(dladdr(reinterpret_cast<const void*>(&gnu_get_libc_version), &info), 0);
  const auto offset =
      reinterpret_cast<std::uintptr_t>(&gnu_get_libc_version) - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  EXPECT_TRUE(contains(SymbolTable(info.dli_fname).names_at(std::vector{offset})[0], "gnu_get_libc_version"));
}

TEST(SymbolTable, IsEmptyWhereTheFileIsCutOff) {
  std::string path = testing::TempDir() + "cut_off_XXXXXX";
  const int fd = mkstemp(path.data());
  ASSERT_GE(fd, 0);
  std::filesystem::copy_file("/proc/self/exe", path, std::filesystem::copy_options::overwrite_existing);
  const std::uintmax_t whole = std::filesystem::file_size(path);
  const std::vector<std::uint64_t> address = {offset_of(&one_of_two)};
  for (const std::uintmax_t bytes : {whole - 100, whole / 2, std::uintmax_t{64}, std::uintmax_t{3}}) {
    std::filesystem::resize_file(path, bytes);
    EXPECT_EQ(SymbolTable(path).names_at(address)[0], "") << bytes;
  }
  close(fd);
  unlink(path.c_str());
}

}  // namespace
}  // namespace retinue
