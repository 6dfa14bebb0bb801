#include "collective/algorithms/reducer.h"

#include <algorithm>
#include <exception>

namespace retinue {
namespace {

/// A function may take any time. This much of it passes between two looks at whether a member failed.
constexpr std::size_t kReducedBetweenLooks = std::size_t{16} << 10;

}  // namespace

void reduce_by_function(Session& session, const Call& call, int sources, ReduceDestinations destinations,
                        std::size_t count) {
  const ReduceFunction& function = *call.what.function;
  PointerLists& lists = session.scratch();
  if (destinations.arrays != lists.destinations.data())
    std::copy_n(destinations.arrays, destinations.count, lists.destinations.data());
  const std::size_t at_once = std::max<std::size_t>(1, kReducedBetweenLooks / call.element_bytes);
  for (std::size_t at = 0; at < count; at += at_once) {
    const std::size_t elements = std::min(at_once, count - at);
    try {
      function.kernel()({.sources = lists.sources.data(),
                         .source_count = sources,
                         .destinations = lists.destinations.data(),
                         .destination_count = destinations.count,
                         .count = elements});
    } catch (...) {
      session.fail_by(std::current_exception());
    }
    const std::size_t bytes = elements * call.element_bytes;
    for (int i = 0; i < sources; ++i) {
      const void*& source = lists.sources[static_cast<std::size_t>(i)];
      source = static_cast<const std::byte*>(source) + bytes;
    }
    for (int i = 0; i < destinations.count; ++i) {
      void*& destination = lists.destinations[static_cast<std::size_t>(i)];
      destination = static_cast<std::byte*>(destination) + bytes;
    }
    session.check_members();
  }
}

}  // namespace retinue
