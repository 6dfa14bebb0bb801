#pragma once

/// Places at which a test kills the process: between any two steps that others can see. They exist only where a test
/// compiles the source once more with RETINUE_CRASH_POINTS and defines crash_here().
#if defined(RETINUE_CRASH_POINTS)
namespace retinue {
void crash_here();
}
#define RETINUE_CRASH_POINT() ::retinue::crash_here()
#else
#define RETINUE_CRASH_POINT() static_cast<void>(0)
#endif
