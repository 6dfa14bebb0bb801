#pragma once

#include <memory>
#include <string>
#include <vector>

#include "peer.h"

namespace retinue::bench {

struct NamedPeer {
  std::string name;
  std::shared_ptr<Peer> peer;
};

/// The MPIs of bench/peers/install, each at those settings of which one is its best for `op` among so many ranks on
/// this machine's CPUs. They answer the commands of bench/peers/mpi_ranks.c, within 20 seconds each or never again.
std::vector<NamedPeer> mpi_peers(const std::string& op, int ranks);

}  // namespace retinue::bench
