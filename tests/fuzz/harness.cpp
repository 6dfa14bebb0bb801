#include "fuzz/harness.h"

#include <algorithm>

#include "ipc/memory/job_layout.h"
#include "ipc/memory/payload.h"
#include "retinue/ipc/barrier.h"
#include "retinue/ipc/lock.h"
#include "retinue/ipc/queue.h"
#include "retinue/ipc/shared_value.h"

namespace retinue::fuzz {
namespace {

template <class Object>
SharedBlock block_of(const Object& object) {
  return detail::encode_value(object).references.at(0);
}

}  // namespace

Job& Job::instance() {
  static auto& job = *new Job;  // The kernel's list of this thread's robust locks leads into it to the end.
  return job;
}

Job::Job() : memory_(JobMemory::create(std::size_t{128} << 20)) {
  enter_process_slot(*memory_, kProgramSlot);
  JobMemory::set_current(memory_);
  blocks_.push_back(SharedBlock::allocate(memory_, 100));
  blocks_.push_back(SharedBlock::allocate(memory_, 10'000));
  blocks_.push_back(block_of(Queue<std::string>({.capacity = 4})));
  blocks_.push_back(block_of(Queue<int>({.capacity = 4})));
  blocks_.push_back(block_of(Lock::create()));
  blocks_.push_back(block_of(Value<int>(7)));
  blocks_.push_back(block_of(Array<double>(3)));
  blocks_.push_back(block_of(Barrier(2)));
  const BlockHandle payload = store_payload(*memory_, {"a payload"}, {blocks_[0], blocks_[1]});
  blocks_.push_back(SharedBlock::hold(memory_, payload));
  memory_->release(payload);
}

std::string Job::with_handles(Bytes input) const {
  constexpr std::string_view kMark = "HNDL";
  std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  for (std::size_t at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at + 1)) {
    if (text.size() - at < sizeof(BlockHandle)) break;
    BlockHandle handle = blocks_[static_cast<unsigned char>(text[at + 4]) % blocks_.size()].handle();
    std::uint64_t more = 0;
    std::memcpy(&more, text.data() + at + 8, sizeof more);
    if (text[at + 5] == 1) handle.generation += static_cast<std::uint32_t>(more);
    if (text[at + 5] == 2) handle.index += static_cast<std::uint32_t>(more);
    if (text[at + 5] == 3) handle.offset += more;
    if (text[at + 5] == 4) handle.bytes += more;
    std::memcpy(text.data() + at, &handle, sizeof handle);
  }
  return text;
}

void Job::check(const SharedBlock& block) const {
  if (!block) return;
  require(memory_->contains(block.data(), block.bytes()), "a block that reaches outside of job memory");
  require(std::find(blocks_.begin(), blocks_.end(), block) != blocks_.end(), "a block that nobody made");
}

void overwrite(Input& input, std::span<std::byte> memory) {
  while (!input.is_empty()) {
    const std::size_t offset = input.number<std::uint16_t>() % memory.size();
    const Bytes bytes = input.take(input.number<std::uint8_t>());
    std::memcpy(memory.data() + offset, bytes.data(), std::min(bytes.size(), memory.size() - offset));
  }
}

}  // namespace retinue::fuzz
