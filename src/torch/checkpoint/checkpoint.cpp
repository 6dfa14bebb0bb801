#include "retinue/torch/checkpoint.h"

#include <c10/util/StringUtil.h>
#include <pthread.h>
#include <sched.h>

#include <cereal/types/string.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/vector.hpp>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "retinue/os/detail/standard_error.h"
#include "retinue/torch/groups.h"
#include "retinue/torch/objects.h"
#include "torch/checkpoint/checkpoint_folder.h"
#include "torch/checkpoint/checkpoint_reader.h"
#include "torch/checkpoint/checkpoint_writer.h"
#include "torch/checkpoint/collected_state.h"
#include "torch/checkpoint/crc32.h"
#include "torch/checkpoint/snapshot.h"
#include "torch/checkpoint/state_restorer.h"
#include "torch/groups/failure.h"
#include "torch/groups/make_group.h"

namespace retinue {
namespace {

/// Its threads wait for each other without using the CPUs that train, and a slow disk is no late rank.
ProcessGroup make_writers_group(const ProcessGroup& group, const std::source_location& where) {
  std::vector<int> ranks(static_cast<std::size_t>(checked_group("Checkpoint", group).getSize()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return new_group(ranks, group, {.waiting = Waiting::kPolite, .late_after = std::chrono::nanoseconds(0)}, where);
}

/// What must be the same on all ranks.
std::string common_part(Manifest manifest) {
  manifest.generators.clear();
  if (manifest.sampler) manifest.sampler.emplace();
  if (manifest.optimizer && !manifest.optimizer->archive.empty()) manifest.optimizer->archive = "of rank 0";
  return encode_manifest(manifest);
}

/// Where a rank stands before it saves.
struct SaveNotice {
  Failure failure;
  std::uint64_t bytes = 0;  ///< Of the part that all have in common,
  std::uint32_t crc = 0;    ///< with its CRC-32.
  bool has_slices = false;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(failure, bytes, crc, has_slices);
  }
};

}  // namespace

class Checkpoint::Impl {
 public:
  Impl(const std::filesystem::path& folder, ProcessGroup group, CheckpointOptions options,
       const std::source_location& where)
      : folder_(std::filesystem::absolute(folder)),
        group_(std::move(group)),
        writers_(make_writers_group(group_, where)),
        options_(options) {
    throw_if_any_failed(c10::str("Checkpoint: cannot use the folder ", folder_.path().string()),
                        failure_of([&] { folder_.create(); }), group_, where);
  }
  ~Impl() {
    join_thread();
    if (!error_) return;
    try {
      std::rethrow_exception(std::exchange(error_, nullptr));
    } catch (const std::exception& error) {
      write_standard_error(c10::str("retinue: ", error.what(), "\n"));
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const CheckpointFolder& folder() const { return folder_; }

  void wait() {
    join_thread();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  void save(std::int64_t step, const CheckpointState& state, const std::source_location& where) {
    wait();
    CollectedState collected;
    SaveNotice notice{.failure = failure_of([&] { collected = collect(step, group_, state); })};
    agree(step, collected, notice, where);
    CheckpointJob job{.folder = folder_,
                      .keep = options_.keep,
                      .manifest = collected.manifest,
                      .layout = lay_out(collected.manifest),
                      .bytes = {},
                      .failure = {},
                      .where = where};
    const auto parts =
        parts_to_write(job.manifest, extents_of(job.layout, job.manifest), group_->getSize(), group_->getRank());
    // A rank without memory tells the others in its report, for which they wait.
    job.failure = failure_of([&] {
      if (options_.async)
        snapshot_.copy(parts, collected);
      else
        snapshot_.refer(parts, collected);
    });
    job.bytes = std::move(snapshot_.bytes());
    if (options_.async) return write_in_background(std::move(job));
    write_checkpoint(job, writers_);
    snapshot_.forget();
  }

  std::optional<std::int64_t> newest(const std::source_location& where) const {
    std::pair<Failure, std::int64_t> found{{}, -1};
    if (group_->getRank() == 0)
      found.first = failure_of([&] {
        const std::vector<std::int64_t> steps = folder_.steps();
        if (!steps.empty()) found.second = steps.back();
      });
    broadcast_object(found, group_, 0, where);
    if (found.first) throw_failure("Checkpoint: cannot load", found.first, 0, group_->getSize());
    return found.second < 0 ? std::nullopt : std::optional(found.second);
  }

  void load(std::int64_t step, const CheckpointState& state, const std::source_location& where) {
    const std::string doing = c10::str("Checkpoint: cannot load step ", step);
    std::optional<CheckpointReader> reader;
    std::optional<StateRestorer> restorer;
    std::pair<Failure, std::vector<RecordPart>> mine;
    mine.first = failure_of([&] {
      reader.emplace(folder_.file_of(step));
      restorer.emplace(*reader, state, group_->getRank());
      mine.second = reader->read_crcs(group_->getSize(), group_->getRank());
    });
    const auto of_ranks = all_gather_object(mine, group_, where);
    std::vector<std::vector<RecordPart>> parts;
    for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
      if (of_ranks[rank].first) throw_failure(doing, of_ranks[rank].first, static_cast<int>(rank), group_->getSize());
      parts.push_back(of_ranks[rank].second);
    }
    throw_if_any_failed(doing, failure_of([&] {
                          reader->check_crcs(parts);
                          restorer->check();
                        }),
                        group_, where);
    throw_if_any_failed(doing, failure_of([&] { restorer->restore(); }), group_, where);
  }

 private:
  /// Compares what ranks save, and joins what they have slices of.
  void agree(std::int64_t step, CollectedState& collected, SaveNotice& notice, const std::source_location& where) {
    const std::string doing = c10::str("Checkpoint: cannot save step ", step);
    const std::string common = common_part(collected.manifest);
    notice.bytes = common.size();
    notice.crc = crc32(common.data(), common.size());
    notice.has_slices = collected.manifest.has_slices();
    const std::vector<SaveNotice> notices = all_gather_object(notice, group_, where);
    bool has_slices = false;
    bool is_same = true;
    for (std::size_t rank = 0; rank < notices.size(); ++rank) {
      if (notices[rank].failure) throw_failure(doing, notices[rank].failure, static_cast<int>(rank), group_->getSize());
      has_slices |= notices[rank].has_slices;
      is_same &= notices[rank].bytes == notices[0].bytes && notices[rank].crc == notices[0].crc;
    }
    if (is_same && !has_slices) return;
    join(doing, collected, common, where);
  }

  void join(const std::string& doing, CollectedState& collected, const std::string& common,
            const std::source_location& where) {
    const std::vector<std::string> of_ranks = all_gather_object(common, group_, where);
    Manifest merged;
    throw_if_any_failed(doing, failure_of([&] {
                          std::vector<Manifest> manifests;
                          for (const std::string& bytes : of_ranks) manifests.push_back(decode_manifest(bytes));
                          merged = merge_manifests(std::move(manifests));
                        }),
                        group_, where);
    merged.sampler = collected.manifest.sampler;
    merged.generators = collected.manifest.generators;
    if (merged.optimizer && collected.manifest.optimizer)
      merged.optimizer->archive = collected.manifest.optimizer->archive;
    collected.rearrange(merged);
  }

  void write_in_background(CheckpointJob job) {
    const auto write = [this, shared_job = std::make_shared<CheckpointJob>(std::move(job))] {
      try {
        write_checkpoint(*shared_job, writers_);
      } catch (...) {
        error_ = std::current_exception();
      }
    };
    try {
      thread_ = std::thread(write);
    } catch (const std::system_error&) {
      return write();  // The system has no thread left, and the other ranks wait for this one's part.
    }
    // With a CPU for each rank the thread has none of its own. Its nice value wouldn't help: a thread that has just
    // begun keeps its CPU for milliseconds, while ranks wait for each other. An idle one gives way at once.
    set_policy(SCHED_IDLE);
  }

  void join_thread() {
    if (!thread_.joinable()) return;
    set_policy(SCHED_OTHER);  // The program waits for it. Only root may do that; without it takes longer.
    thread_.join();
  }

  void set_policy(int policy) {
    const sched_param priority{};
    pthread_setschedparam(thread_.native_handle(), policy, &priority);
  }

  CheckpointFolder folder_;
  ProcessGroup group_;
  ProcessGroup writers_;  ///< The same ranks, for the thread's calls.
  CheckpointOptions options_;
  Snapshot snapshot_;
  std::thread thread_;
  std::exception_ptr error_;  ///< The thread's, until it has been thrown.
};

Checkpoint::Checkpoint(const std::filesystem::path& folder, ProcessGroup group, CheckpointOptions options,
                       std::source_location where)
    : impl_(std::make_unique<Impl>(folder, std::move(group), options, where)) {}
Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

void Checkpoint::save(std::int64_t step, const CheckpointState& state, std::source_location where) {
  impl_->save(step, state, where);
}

void Checkpoint::wait() {
  impl_->wait();
}

std::optional<std::int64_t> Checkpoint::load_newest(const CheckpointState& state, std::source_location where) {
  impl_->wait();
  const std::optional<std::int64_t> step = impl_->newest(where);
  if (step) impl_->load(*step, state, where);
  return step;
}

void Checkpoint::load(std::int64_t step, const CheckpointState& state, std::source_location where) {
  impl_->wait();
  impl_->load(step, state, where);
}

std::vector<std::int64_t> Checkpoint::steps() const {
  return impl_->folder().steps();
}

std::filesystem::path Checkpoint::path(std::int64_t step) const {
  return impl_->folder().file_of(step);
}

}  // namespace retinue
