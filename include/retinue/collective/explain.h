#pragma once

#include <string>

namespace retinue {

class Communicator;

/// Returns a description, for people, of how this group's collectives travel: for each, the paths that
/// docs/reference/algorithms.md describes, the part size in bytes up to which each path is used, and where these limits
/// come from. Doesn't wait for other members.
std::string explain_paths(const Communicator& group);

}  // namespace retinue
