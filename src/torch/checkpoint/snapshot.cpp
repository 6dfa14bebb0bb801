#include "torch/checkpoint/snapshot.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

namespace retinue {
namespace {

/// Elements in the order of their indices, in memory of this process.
at::Tensor plain(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return tensor.resolve_conj().resolve_neg().cpu().contiguous();
}

/// The parts' places in their sources; consecutive parts of a tensor find the same plain one.
class PartReader {
 public:
  explicit PartReader(const CollectedState& state) : state_(state) {}

  const char* data(const RecordPart& part) {
    const TensorSource& source = state_.sources.at(part.record);
    if (!tensor_.defined() || record_ != part.record) {
      tensor_ = plain(source.tensor);
      record_ = part.record;
    }
    const std::uint64_t begin =
        static_cast<std::uint64_t>(source.begin) * state_.manifest.tensors[part.record].element_bytes();
    return static_cast<const char*>(tensor_.const_data_ptr()) + (part.begin - begin);
  }
  const at::Tensor& tensor() const { return tensor_; }

 private:
  const CollectedState& state_;
  at::Tensor tensor_;
  std::size_t record_ = 0;
};

}  // namespace

void Snapshot::copy(const std::vector<RecordPart>& parts, const CollectedState& state) {
  std::int64_t size = 0;
  for (const RecordPart& part : parts) size += static_cast<std::int64_t>(part.bytes);
  if (!memory_.defined() || memory_.numel() < size) {
    memory_ = at::Tensor();  // First, so that there are never two.
    memory_ = at::empty({size}, at::kByte);
  }
  bytes_.clear();
  PartReader reader(state);
  auto* to = static_cast<char*>(memory_.mutable_data_ptr());
  for (const RecordPart& part : parts) {
    std::memcpy(to, reader.data(part), part.bytes);
    bytes_.push_back({.part = part, .data = to});
    to += part.bytes;
  }
}

void Snapshot::refer(const std::vector<RecordPart>& parts, const CollectedState& state) {
  bytes_.clear();
  held_.clear();
  PartReader reader(state);
  for (const RecordPart& part : parts) {
    const char* const data = reader.data(part);
    bytes_.push_back({.part = part, .data = data});
    held_.push_back(reader.tensor());
  }
}

}  // namespace retinue
