#include "retinue/ipc/shared_block.h"

#include <utility>

#include "retinue/base/error.h"

namespace retinue {

SharedBlock::Held::Held(std::shared_ptr<JobMemory> in, const BlockHandle& block)
    : memory(std::move(in)), handle(block), data(memory->at(block.offset)) {}

SharedBlock::Held::~Held() {
  try {
    memory->release(handle);
  } catch (const Error&) {
    // Destructors don't throw: the block comes back with all that this process holds.
  }
}

SharedBlock SharedBlock::allocate(std::size_t bytes) {
  return allocate(JobMemory::current(), bytes);
}

SharedBlock SharedBlock::allocate(const std::shared_ptr<JobMemory>& memory, std::size_t bytes) {
  SharedBlock block;
  block.held_ = std::make_shared<const Held>(memory, memory->allocate(bytes));
  return block;
}

SharedBlock SharedBlock::hold(const std::shared_ptr<JobMemory>& memory, const BlockHandle& handle) {
  memory->retain(handle);
  SharedBlock block;
  block.held_ = std::make_shared<const Held>(memory, handle);
  return block;
}

}  // namespace retinue
