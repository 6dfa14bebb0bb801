#include "collective/board/places.h"

#include <mutex>
#include <utility>
#include <vector>

#include "os/machine/cpus.h"
#include "os/machine/memory.h"

namespace retinue {
namespace {

struct KnownPlace {
  static KnownPlace& get() {
    static auto* const known = new KnownPlace;
    return *known;
  }

  std::mutex mutex;
  std::vector<int> cpus;
  CommonPlace place;
};
[[maybe_unused]] const KnownPlace& place_at_start = KnownPlace::get();  // See made_at_start in os/sync/futex.cpp.

/// Asked anew where this process may run on other CPUs than before: the answer is in many small files.
CommonPlace own_place() {
  KnownPlace& known = KnownPlace::get();
  std::vector<int> cpus = allowed_cpus();
  const std::lock_guard lock(known.mutex);
  if (known.cpus != cpus) {
    known.place = common_place(cpus);
    known.cpus = std::move(cpus);
  }
  return known.place;
}

}  // namespace

void Places::publish(Member& own, const CommunicatorOptions& options) {
  const CommonPlace place = options.cache_domain && options.memory_node ? CommonPlace() : own_place();
  own.cache_domain = options.cache_domain.value_or(place.cache.value_or(kUnknownDomain));
  own.memory_node = options.memory_node.value_or(place.node.value_or(kUnknownDomain));
}

void Places::find(const JobGroup& group, const Board& board, const BlockHandle& board_block) {
  std::vector<int> caches;
  std::vector<int> nodes;
  for (int rank = 0; rank < board.size(); ++rank) {
    caches.push_back(board.member(rank).cache_domain);
    nodes.push_back(board.member(rank).memory_node);
  }
  if (Domains domains = domains_of(caches); !domains.is_one())
    relay_.emplace(group, board, board_block, std::move(domains));
  span_nodes_ = !domains_of(nodes).is_one();
  if (span_nodes_) prefer_node(board.staging(group.rank), Board::kDataBytes, board.member(group.rank).memory_node);
}

}  // namespace retinue
