#include "queue/placement.h"

#include "bench.h"

namespace retinue::bench {
namespace {

cpu_set_t own_cpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) throw Unavailable("the CPU affinity of this program is not known");
  return cpus;
}

/// The first `most` of them.
cpu_set_t some_of(const cpu_set_t& cpus, int skipped, int most) {
  cpu_set_t some;
  CPU_ZERO(&some);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &cpus) || skipped-- > 0) continue;
    if (most-- > 0) CPU_SET(cpu, &some);
  }
  return some;
}

}  // namespace

TwoCpus::TwoCpus() : before_(own_cpus()) {
  if (CPU_COUNT(&before_) < 2) throw Unavailable("this needs two CPUs");
  const cpu_set_t two = some_of(before_, 0, 2);
  sched_setaffinity(0, sizeof two, &two);
}

TwoCpus::~TwoCpus() {
  sched_setaffinity(0, sizeof before_, &before_);
}

void take_place(Placement placement, int rank) {
  if (placement == Placement::kFree) return;
  const cpu_set_t one = some_of(own_cpus(), placement == Placement::kTogether ? 0 : rank % 2, 1);
  sched_setaffinity(0, sizeof one, &one);
}

}  // namespace retinue::bench
