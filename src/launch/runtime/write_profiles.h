#pragma once

namespace retinue {

/// Writes what coverage and profiles of the program, and gcc's of its shared libraries too, write at its exit, which a
/// forked rank leaves out. Does nothing in programs that are built without. Cost: some microseconds for each library.
void write_profiles();

}  // namespace retinue
