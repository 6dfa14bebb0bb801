#pragma once

#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>

#include <string>

namespace retinue {

/// What is used of libdw.
#define RETINUE_LIBDW_FUNCTIONS(F) \
  F(dwarf_attr)                    \
  F(dwarf_attr_integrate)          \
  F(dwarf_filesrc)                 \
  F(dwarf_formstring)              \
  F(dwarf_formudata)               \
  F(dwarf_getscopes)               \
  F(dwarf_getscopes_die)           \
  F(dwarf_getsrc_die)              \
  F(dwarf_getsrcfiles)             \
  F(dwarf_haspc)                   \
  F(dwarf_lineaddr)                \
  F(dwarf_lineno)                  \
  F(dwarf_linesrc)                 \
  F(dwarf_ranges)                  \
  F(dwarf_tag)                     \
  F(dwfl_addrmodule)               \
  F(dwfl_begin)                    \
  F(dwfl_build_id_find_debuginfo)  \
  F(dwfl_end)                      \
  F(dwfl_errmsg)                   \
  F(dwfl_frame_pc)                 \
  F(dwfl_getthread_frames)         \
  F(dwfl_linux_proc_attach)        \
  F(dwfl_linux_proc_find_elf)      \
  F(dwfl_linux_proc_report)        \
  F(dwfl_module_addrdie)           \
  F(dwfl_module_addrinfo)          \
  F(dwfl_module_getelf)            \
  F(dwfl_module_info)              \
  F(dwfl_module_nextcu)            \
  F(dwfl_report_elf)               \
  F(dwfl_report_end)

/// libdw's functions by their names. It is loaded when it is first used, since it and what it needs are five libraries,
/// which most processes would load for nothing.
struct LibDw {
#define RETINUE_DECLARE_LIBDW(name) decltype(&::name) name = nullptr;  // NOLINT(bugprone-macro-parentheses)
  RETINUE_LIBDW_FUNCTIONS(RETINUE_DECLARE_LIBDW)
#undef RETINUE_DECLARE_LIBDW

  /// Empty, or why it could not be loaded and what to do; then it must not be used.
  std::string problem;
};

/// The same in all calls. Threads: needs a process of one thread, or one that has called it before.
const LibDw& libdw();

}  // namespace retinue
