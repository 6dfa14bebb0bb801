#include "ipc/parcel.h"

#include <algorithm>
#include <unordered_set>

#include "ipc/crash_point.h"

namespace retinue {

BlockHandle store_parcel(JobMemory& memory, std::initializer_list<std::string_view> pieces,
                         const std::vector<SharedBlock>& references, BlockUse use) {
  std::vector<BlockHandle> carried;
  std::unordered_set<std::uint64_t> seen;  // Their offsets: each is alive, so that no two have the same.
  for (const SharedBlock& block : references)
    if (seen.insert(block.handle().offset).second) carried.push_back(block.handle());
  std::size_t bytes = carried.size() * sizeof(BlockHandle);
  for (const std::string_view piece : pieces) bytes += piece.size();
  const BlockHandle parcel = memory.allocate(bytes, use);
  RETINUE_CRASH_POINT();
  char* to = memory.at<char>(parcel.offset) + carried.size() * sizeof(BlockHandle);
  for (const std::string_view piece : pieces) to = std::copy(piece.begin(), piece.end(), to);
  try {
    memory.carry(parcel, carried);
  } catch (...) {
    memory.release(parcel);
    throw;
  }
  RETINUE_CRASH_POINT();
  return parcel;
}

std::string_view parcel_bytes(const JobMemory& memory, const BlockHandle& parcel) {
  const std::size_t before = memory.carried_by(parcel).size_bytes();
  return {memory.at<char>(parcel.offset + before), parcel.bytes - before};
}

std::vector<SharedBlock> parcel_references(const std::shared_ptr<JobMemory>& memory, const BlockHandle& parcel) {
  std::vector<SharedBlock> references;
  for (const BlockHandle& carried : memory->carried_by(parcel))
    references.push_back(SharedBlock::hold(memory, carried));
  return references;
}

}  // namespace retinue
