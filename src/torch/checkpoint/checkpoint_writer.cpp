#include "torch/checkpoint/checkpoint_writer.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cereal/types/vector.hpp>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "retinue/base/error.h"
#include "retinue/torch/objects.h"
#include "torch/checkpoint/checkpoint_file.h"
#include "torch/checkpoint/crc32.h"
#include "torch/checkpoint/pickled_view.h"

namespace retinue {
namespace {

/// A part of this size is in the processor's cache when it is written after its CRC-32 was computed.
constexpr std::size_t kWriteBytes = std::size_t{1} << 18;
/// What the disk gets at once, while the next bytes are copied.
constexpr std::uint64_t kFlushBytes = std::uint64_t{8} << 20;

/// What rank 0 needs of the others.
struct WriteReport {
  Failure failure;
  std::vector<RecordPart> parts;  ///< With their CRC-32s.
  std::vector<SavedGenerator> generators;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(failure, parts, generators);
  }
};

void write_part(CheckpointFile& file, BytesToWrite& bytes, std::uint64_t offset) {
  std::uint64_t flushed = 0;
  for (std::uint64_t done = 0; done < bytes.part.bytes;) {
    const std::size_t count = std::min<std::uint64_t>(kWriteBytes, bytes.part.bytes - done);
    bytes.part.crc = crc32(bytes.data + done, count, bytes.part.crc);
    file.write(offset + done, bytes.data + done, count);
    done += count;
    if (done - flushed < kFlushBytes && done < bytes.part.bytes) continue;
    file.begin_flush(offset + flushed, done - flushed);
    flushed = done;
  }
}

/// Rank 0's work after all parts are written: what only one rank can write.
class FileEnd {
 public:
  FileEnd(CheckpointJob& job, const std::vector<WriteReport>& reports) : job_(job), layout_(job.layout) {
    const std::size_t tensor_count = job.manifest.tensors.size();
    job.manifest.generators.clear();
    std::vector<std::vector<RecordPart>> parts;
    for (const WriteReport& report : reports) {
      job.manifest.generators.push_back(report.generators);
      parts.push_back(report.parts);
    }
    const auto crcs = join_crcs(parts, extents_of(layout_, job.manifest), tensor_count);
    for (std::size_t i = 0; i < tensor_count; ++i) layout_.records()[i].crc = crcs[i];
  }

  void write(CheckpointFile& file) {
    const std::size_t tensor_count = layout_.records().size();
    for (std::size_t i = 0; i < tensor_count; ++i) put(file, layout_.header_offset(i), layout_.header(i));
    const PickledView view = make_pickled_view(job_.manifest);
    for (std::size_t i = 0; i < view.small.size(); ++i)
      add(file, "data/" + std::to_string(tensor_count + i),
          {static_cast<const char*>(view.small[i].const_data_ptr()), view.small[i].nbytes()});
    add(file, "data.pkl", view.pickle);
    add(file, "byteorder", "little");
    add(file, "version", "3\n");
    add(file, kIndexRecord, encode_index({job_.manifest, extents_of(layout_, job_.manifest)}));
    put(file, layout_.end(), layout_.directory());
  }

 private:
  static void put(CheckpointFile& file, std::uint64_t offset, const std::string& bytes) {
    file.write(offset, bytes.data(), bytes.size());
  }

  void add(CheckpointFile& file, const std::string& name, const std::string& bytes) {
    const std::size_t index = layout_.add(kArchiveName + name, bytes.size());
    layout_.records()[index].crc = crc32(bytes.data(), bytes.size());
    put(file, layout_.header_offset(index), layout_.header(index));
    put(file, layout_.records()[index].offset, bytes);
  }

  CheckpointJob& job_;
  ZipLayout& layout_;
};

class Writer {
 public:
  Writer(CheckpointJob& job, const ProcessGroup& group)
      : job_(job),
        group_(group),
        is_root_(group->getRank() == 0),
        unfinished_(job.folder.unfinished_file_of(job.manifest.step)),
        doing_(c10::str("Checkpoint: cannot save step ", job.manifest.step)) {}

  void write() {
    // Others can open the file when rank 0 has made it.
    share({failure_of([&] {
             if (!is_root_) return;
             job_.folder.remove_unfinished();
             file_ = std::make_unique<CheckpointFile>(unfinished_, CheckpointFile::Access::kCreate);
             file_->reserve(job_.layout.end());
           }),
           0});
    WriteReport mine{.failure = job_.failure, .parts = {}, .generators = {}};
    if (!mine.failure) mine.failure = failure_of([&] { write_parts(); });
    for (const BytesToWrite& bytes : job_.bytes) mine.parts.push_back(bytes.part);
    if (!job_.manifest.generators.empty()) mine.generators = job_.manifest.generators.front();
    const std::vector<WriteReport> reports = gather_object(mine, group_, 0, job_.where);
    std::pair<Failure, int> outcome = first_failure(reports);
    if (is_root_ && !outcome.first) outcome = {failure_of([&] { finish(reports); }), 0};
    share(std::move(outcome));
  }

 private:
  /// Throws rank 0's outcome on all ranks: a failure and whose it is.
  void share(std::pair<Failure, int> outcome) {
    std::error_code ignored;
    // Before any rank has the error.
    if (is_root_ && outcome.first && file_) std::filesystem::remove(unfinished_, ignored);
    broadcast_object(outcome, group_, 0, job_.where);
    if (outcome.first) throw_failure(doing_, outcome.first, outcome.second, group_->getSize());
  }

  void write_parts() {
    if (job_.bytes.empty()) return;
    if (!file_) file_ = std::make_unique<CheckpointFile>(unfinished_, CheckpointFile::Access::kWrite);
    for (BytesToWrite& bytes : job_.bytes)
      write_part(*file_, bytes, job_.layout.records()[bytes.part.record].offset + bytes.part.begin);
    file_->sync();
    if (!is_root_) file_.reset();
  }

  static std::pair<Failure, int> first_failure(const std::vector<WriteReport>& reports) {
    for (std::size_t rank = 0; rank < reports.size(); ++rank)
      if (reports[rank].failure) return {reports[rank].failure, static_cast<int>(rank)};
    return {};
  }

  void finish(const std::vector<WriteReport>& reports) {
    FileEnd(job_, reports).write(*file_);
    file_->sync();
    const std::filesystem::path finished = job_.folder.file_of(job_.manifest.step);
    std::error_code error;
    std::filesystem::rename(unfinished_, finished, error);
    if (error) throw SystemError("cannot rename " + unfinished_.string() + " to " + finished.string(), error.value());
    file_.reset();
    sync_folder(job_.folder.path());
    job_.folder.remove_old(job_.keep, job_.manifest.step);
  }

  CheckpointJob& job_;
  const ProcessGroup& group_;
  bool is_root_;
  std::filesystem::path unfinished_;
  std::string doing_;
  std::unique_ptr<CheckpointFile> file_;
};

}  // namespace

ZipLayout lay_out(const Manifest& manifest) {
  ZipLayout layout;
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i)
    layout.add(kArchiveName + ("data/" + std::to_string(i)), manifest.tensors[i].bytes());
  return layout;
}

std::vector<SavedExtent> extents_of(const ZipLayout& layout, const Manifest& manifest) {
  std::vector<SavedExtent> extents;
  for (const ZipRecord& record : layout.records()) {
    const bool is_tensor = extents.size() < manifest.tensors.size();
    extents.push_back({.name = is_tensor ? manifest.tensors[extents.size()].name : record.name,
                       .offset = record.offset,
                       .bytes = record.bytes,
                       .crc = record.crc});
  }
  return extents;
}

void write_checkpoint(CheckpointJob& job, const ProcessGroup& group) {
  Writer(job, group).write();
}

}  // namespace retinue
