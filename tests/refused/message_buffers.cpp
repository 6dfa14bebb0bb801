// Buffers of messages that are none.
#include <deque>
#include <string>
#include <vector>

#include "retinue/collective/communicator.h"

void refused(retinue::Communicator& group, std::span<const int> read_only) {
  std::deque<int> apart(4);
  group.send(std::string_view("a") == "b", 1);             // refused: for one value write std::span(&value, 1)
  group.send(apart, 1);                                    // refused: copy them into a std::vector
  group.send(std::vector<std::vector<int>>(1), 1);         // refused: (retinue/collective/objects.h)
  static_cast<void>(group.irecv(read_only, 1));            // refused: the call writes into this buffer
  static_cast<void>(group.isend(std::vector<int>(4), 1));  // refused: this buffer is a temporary, which is gone then
}
