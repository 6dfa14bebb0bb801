// Buffers of collectives that are none.
#include <deque>
#include <list>
#include <string>
#include <vector>

#include "retinue/collective/communicator.h"

// Each sentence comes once in a source: a compiler says the same of the same instantiation once.
void refused(retinue::Communicator& group, const std::vector<int>& read_only) {
  std::vector<int> numbers(4);
  std::vector<double> fractions(4);
  std::list<int> list(4);
  std::vector<bool> bits(4);
  std::vector<std::string> texts(4);
  int number = 0;
  group.all_reduce(number);                         // refused: for one value write std::span(&value, 1), for a pointer
  group.broadcast(list, 0);                         // refused: must be contiguous
  group.broadcast(bits, 0);                         // refused: a std::vector<bool> holds bits
  group.broadcast(texts, 0);                        // refused: send values of other types with send_object
  group.broadcast(read_only, 0);                    // refused: it must not be const
  group.broadcast(std::vector<int>(4), 0);          // refused: the call writes into a temporary
  group.all_gather(numbers, fractions);             // refused: must hold elements of the same type
  group.all_reduce(numbers.data(), 4);              // refused: for a pointer write std::span(pointer, count)
  group.all_reduce({1, 2});                         // refused: pass a variable, not a list of values
  group.scatter(fractions, fractions, numbers, 0);  // refused: scatter(input, counts, output, 0)
  group.reduce(std::vector<wchar_t>(4), std::span<wchar_t>(), 0);  // refused: as in all_reduce<fn>(data)
}
