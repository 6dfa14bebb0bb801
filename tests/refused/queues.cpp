// Queues, and what they don't carry.
#include <vector>

#include "retinue/ipc/queue.h"

namespace at {
class Tensor {
 public:
  Tensor();
  ~Tensor();
};
}  // namespace at

void refused(retinue::Queue<std::vector<at::Tensor>>& tensors, retinue::Queue<int*>& pointers) {
  const retinue::Queue<int> queue(10);      // refused: write Queue<T> queue({.capacity = 10})
  tensors.put(std::vector<at::Tensor>(1));  // refused: #include "retinue/torch/tensor_archive.h"
  pointers.put(nullptr);                    // refused: trivially copyable without pointers
}
