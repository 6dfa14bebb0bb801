#include "torch/checkpoint/checkpoint_reader.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "retinue/base/error.h"
#include "torch/checkpoint/checkpoint_writer.h"
#include "torch/checkpoint/crc32.h"

namespace retinue {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

/// The bytes of the index's record.
std::string read_index(const CheckpointFile& file) {
  std::string bytes;
  std::uint64_t offset = 0;
  try {
    caffe2::serialize::PyTorchStreamReader zip(file.path().string());
    if (!zip.hasRecord(kIndexRecord)) throw Error("it is a file of PyTorch, but not one that Checkpoint::save() wrote");
    bytes.resize(zip.getRecordSize(kIndexRecord));
    offset = zip.getRecordOffset(kIndexRecord);
  } catch (const c10::Error& error) {
    throw Error("it is no whole zip file, so it was truncated, damaged, or written by another program: " +
                first_line(error.what_without_backtrace()));
  }
  if (!file.read(offset, bytes.data(), bytes.size())) throw Error("it ends before its index does");
  return bytes;
}

CheckpointIndex checked_index(const CheckpointFile& file) {
  CheckpointIndex index;
  try {
    index = decode_index(read_index(file));
  } catch (const SystemError&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(c10::str(file.path().string(), " cannot be loaded: ", error.what()));
  }
  const std::uint64_t size = file.size();
  for (const SavedExtent& extent : index.extents)
    if (extent.offset > size || extent.bytes > size - extent.offset)
      throw Error(c10::str(file.path().string(), " cannot be loaded: ", extent.name, " lies behind its end; it has ",
                           size, " bytes"));
  for (std::size_t i = 0; i < index.manifest.tensors.size(); ++i)
    if (i >= index.extents.size() || index.extents[i].bytes != index.manifest.tensors[i].bytes())
      throw Error(c10::str(file.path().string(), " cannot be loaded: its index contradicts itself at ",
                           index.manifest.tensors[i].name));
  return index;
}

}  // namespace

CheckpointReader::CheckpointReader(const std::filesystem::path& path)
    : file_(path, CheckpointFile::Access::kRead), index_(checked_index(file_)) {}

std::vector<RecordPart> CheckpointReader::read_crcs(int ranks, int rank) const {
  std::vector<RecordPart> parts = divide(index_.extents, ranks, rank);
  std::vector<char> chunk(kReadBytes);
  for (RecordPart& part : parts) {
    const SavedExtent& extent = index_.extents[part.record];
    for (std::uint64_t done = 0; done < part.bytes;) {
      const std::size_t count = std::min<std::uint64_t>(chunk.size(), part.bytes - done);
      if (!file_.read(extent.offset + part.begin + done, chunk.data(), count))
        throw Error(c10::str(path().string(), " was truncated while it was read, at ", extent.name));
      part.crc = crc32(chunk.data(), count, part.crc);
      done += count;
    }
  }
  return parts;
}

void CheckpointReader::check_crcs(const std::vector<std::vector<RecordPart>>& of_ranks) const {
  const std::vector<std::uint32_t> crcs = join_crcs(of_ranks, index_.extents, index_.extents.size());
  std::string damaged;
  std::size_t count = 0;
  for (std::size_t i = 0; i < crcs.size(); ++i) {
    if (crcs[i] == index_.extents[i].crc) continue;
    if (count++ == 0) damaged = index_.extents[i].name;
  }
  if (count > 0)
    throw Error(c10::str(path().string(), " is damaged: ", damaged,
                         count > 1 ? c10::str(" and ", count - 1, " more records don't have their CRC-32s")
                                   : std::string(" doesn't have its CRC-32"),
                         "; load an earlier step"));
}

void CheckpointReader::read(std::size_t tensor, std::int64_t begin, const at::Tensor& target) const {
  const SavedTensor& saved = index_.manifest.tensors[tensor];
  const SavedExtent& extent = index_.extents[tensor];
  const at::NoGradGuard no_grad;
  const at::Tensor known = target.detach();
  const bool is_plain = known.is_cpu() && known.is_contiguous() && !known.is_conj() && !known.is_neg();
  const at::Tensor bytes = is_plain ? known : at::empty(known.sizes(), at::TensorOptions(saved.scalar_type()));
  if (!file_.read(extent.offset + static_cast<std::uint64_t>(begin) * saved.element_bytes(), bytes.mutable_data_ptr(),
                  bytes.nbytes()))
    throw Error(c10::str(path().string(), " was truncated while it was read, at ", saved.name));
  if (is_plain)
    target.unsafeGetTensorImpl()->bump_version();
  else
    known.copy_(bytes);
}

}  // namespace retinue
