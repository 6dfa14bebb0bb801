// Collectives without their root.
#include <vector>

#include "retinue/collective/communicator.h"

int sum(int a, int b);

void refused(retinue::Communicator& group) {
  std::vector<int> a(4);
  std::vector<int> b(4);
  const std::vector<std::size_t> counts{1, 3};
  group.broadcast(a);           // refused: as in broadcast(data, 0)
  group.scatter(a, b);          // refused: as in scatter(input, output, 0)
  group.gather(a, b);           // refused: as in gather(input, output, 0)
  group.reduce(a, b);           // refused: as in reduce(input, output, 0)
  group.reduce<sum>(a, b);      // refused: as in reduce(input, output, 0)
  group.gather(a, b, counts);   // refused: as in gather(input, output, counts, 0)
  group.scatter(a, counts, b);  // refused: as in scatter(input, counts, output, 0)
}
