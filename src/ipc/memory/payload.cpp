#include "ipc/memory/payload.h"

#include <algorithm>
#include <unordered_set>

#include "os/testing/crash_point.h"

namespace retinue {

BlockHandle store_payload(JobMemory& memory, std::initializer_list<std::string_view> pieces,
                          const std::vector<SharedBlock>& references, BlockUse use) {
  std::vector<BlockHandle> carried;
  std::unordered_set<std::uint64_t> seen;  // Their offsets: each is alive, so that no two have the same.
  for (const SharedBlock& block : references)
    if (seen.insert(block.handle().offset).second) carried.push_back(block.handle());
  std::size_t bytes = carried.size() * sizeof(BlockHandle);
  for (const std::string_view piece : pieces) bytes += piece.size();
  const BlockHandle payload = memory.allocate(bytes, use);
  RETINUE_CRASH_POINT();
  char* to = memory.at<char>(payload.offset) + carried.size() * sizeof(BlockHandle);
  for (const std::string_view piece : pieces) to = std::copy(piece.begin(), piece.end(), to);
  try {
    memory.carry(payload, carried);
  } catch (...) {
    memory.release(payload);
    throw;
  }
  RETINUE_CRASH_POINT();
  return payload;
}

std::string_view payload_bytes(const JobMemory& memory, const BlockHandle& payload) {
  const std::size_t before = memory.carried_by(payload).size_bytes();
  return {memory.at<char>(payload.offset + before), payload.bytes - before};
}

std::vector<SharedBlock> payload_references(const std::shared_ptr<JobMemory>& memory, const BlockHandle& payload) {
  std::vector<SharedBlock> references;
  for (const BlockHandle& carried : memory->carried_by(payload))
    references.push_back(SharedBlock::hold(memory, carried));
  return references;
}

}  // namespace retinue
