#pragma once

#include <string>  // The C++ library's macros.

// Settings that change the C++ library's types. A program with others than this library's fails to link, at a name that
// says which one differs.
#ifdef _GLIBCXX_DEBUG
#define RETINUE_GLIBCXX_DEBUG kLibraryWasBuiltWithGlibcxxDebug
#else
#define RETINUE_GLIBCXX_DEBUG kLibraryWasBuiltWithoutGlibcxxDebug
#endif
#if defined(_GLIBCXX_USE_CXX11_ABI) && !_GLIBCXX_USE_CXX11_ABI
#define RETINUE_CXX11_ABI kLibraryWasBuiltWithoutCxx11Abi
#else
#define RETINUE_CXX11_ABI kLibraryWasBuiltWithCxx11Abi
#endif

namespace retinue::detail {

extern const char RETINUE_GLIBCXX_DEBUG;
extern const char RETINUE_CXX11_ABI;
// Each unit's own: of an inline variable the linker would take one unit's for all.
[[gnu::used, gnu::retain]] static const char* const kLibrarySettings[] = {&RETINUE_GLIBCXX_DEBUG, &RETINUE_CXX11_ABI};

}  // namespace retinue::detail
