#pragma once

#include "os/crash_point.h"  // For the sources of this room and those above it.
