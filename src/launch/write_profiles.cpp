#include "launch/write_profiles.h"

#include <cstdlib>
#include <string_view>

// There in programs alone that are built for it.
extern "C" {
// gcc's --coverage and -fprofile-generate.
[[gnu::weak]] void __gcov_exit();
// clang's --coverage; gcc has it where the program calls it.
[[gnu::weak]] void __gcov_dump();
// clang's -fprofile-instr-generate.
[[gnu::weak]] int __llvm_profile_write_file();
[[gnu::weak]] void __llvm_profile_set_filename(const char* pattern);
}

namespace retinue {
namespace {

/// The pid in its name was that of the program when it began. A pattern that is the one before isn't read again.
void name_llvm_profile() {
  const char* pattern = std::getenv("LLVM_PROFILE_FILE");
  if (pattern == nullptr || std::string_view(pattern).find("%p") == std::string_view::npos) return;
  __llvm_profile_set_filename(nullptr);
  __llvm_profile_set_filename(pattern);
}

}  // namespace

void write_profiles() {
  if (__gcov_exit != nullptr) {
    __gcov_exit();
  } else if (__gcov_dump != nullptr) {
    __gcov_dump();
  }
  if (__llvm_profile_write_file == nullptr) return;
  if (__llvm_profile_set_filename != nullptr) name_llvm_profile();
  __llvm_profile_write_file();
}

}  // namespace retinue
