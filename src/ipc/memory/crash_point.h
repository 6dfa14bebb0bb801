#pragma once

#include "os/testing/crash_point.h"  // For the sources of this module and those above it.
