#pragma once

#include <string>

namespace retinue {

class Communicator;

/// How collectives of this group travel: for each, the paths that docs/reference/algorithms.md describes and the bytes
/// of a part up to which each is taken; and where the borders come from. For people to read. Doesn't wait for other
/// members.
std::string explain_paths(const Communicator& group);

}  // namespace retinue
