#pragma once

namespace retinue {

/// Writes what coverage and profiles of the program write at its exit, which a forked rank leaves out. Does nothing in
/// programs that are built without.
void write_profiles();

}  // namespace retinue
