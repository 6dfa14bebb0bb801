#pragma once

#include <sched.h>

#include <cstdint>

/// On which CPUs those are that the case `queue` compares: all on the same two.
namespace retinue::bench {

enum class Placement : std::uint8_t {
  kFree,      ///< Wherever the scheduler puts them on these two.
  kOneEach,   ///< Even ranks on one, odd ranks on the other.
  kTogether,  ///< All on one, so that whoever waits sleeps.
};

/// Restricts this program, and what it starts, to two of its CPUs until the end of the scope.
class TwoCpus {
 public:
  /// Errors: Unavailable where there are not as many.
  TwoCpus();
  ~TwoCpus();
  TwoCpus(const TwoCpus&) = delete;
  TwoCpus& operator=(const TwoCpus&) = delete;

 private:
  cpu_set_t before_;
};

/// Puts the calling rank, started under TwoCpus, in its place.
void take_place(Placement placement, int rank);

}  // namespace retinue::bench
