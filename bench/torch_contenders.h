#pragma once

#include <string>

#include "collective/data_ops.h"
#include "queue/placement.h"
#include "retinue/launch/options.h"
#include "samples.h"

/// What needs LibTorch. In a build without it all of these throw Unavailable.
namespace retinue::bench {

/// One of data_ops() through c10d::ProcessGroup, the face that code written for c10d uses.
Contender c10d_data_op(std::string name, int ranks, const DataRound& round, TimesOf times);

Spans c10d_barrier_spans(int ranks, const Round& round);

/// init_process_group() of ranks that spawn() started, once in each.
Spans c10d_init_spans(int ranks, const Round& round);

/// Starts `ranks` ranks that run a torch operation, and waits for their end. Units: microseconds.
/// Errors: std::logic_error when a rank's result is wrong.
double torch_spawn_us(int ranks, StartMethod method);

/// A network that is trained; the same as in bench/peers/torch_gloo.py.
struct NetCase {
  const char* name;
  std::size_t parameters;

  std::size_t bytes() const { return parameters * sizeof(float); }
};
inline constexpr NetCase kNets[] = {
    {"small", 1'863'690}, {"large", 19'941'386}, {"transformer", 8'901'130}, {"resnet", 271'978}};

/// Training steps of each rank, with one thread.
struct TrainingRound : Round {
  enum class Mode : std::uint8_t {
    kLocal,        ///< Unconnected processes, each for itself, at the same time.
    kLocalFused,   ///< The same with LibTorch's fused kernel as optimizer,
    kLocalReduce,  ///< or with an all_reduce of as many bytes as the gradients have, but not of them.
    kDdp,
    kDdpFused,
    kSharded,  ///< DDP and ShardedOptimizer,
    kShared,   ///< with share_parameters.
  };
  enum class Algorithm : std::uint8_t { kSgd, kAdamW };

  int net = 0;  ///< Index of kNets.
  Mode mode = Mode::kLocal;
  Algorithm algorithm = Algorithm::kSgd;

  template <class Archive>
  void serialize(Archive& archive) {
    Round::serialize(archive);
    archive(net, mode, algorithm);
  }
};

/// Errors: std::runtime_error when the gradients are not the mean over the ranks, or the parameters differ.
Samples training_steps(int ranks, const TrainingRound& round);

/// The time in which ranks average `bytes` bytes of float32 in job memory.
Contender bare_average(int ranks, std::size_t bytes);

inline constexpr int kNetOfCheckpoints = 1;  ///< Index of kNets.

struct CheckpointRound : Round {
  enum class Mode : std::uint8_t {
    kSave,        ///< A Checkpoint of `bytes` bytes, until it is on the disk.
    kPlainFiles,  ///< As many bytes in a plain file of each rank, until they are on the disk.
    kStep,        ///< Training steps,
    kStepSaving,  ///< of which the first one begins a save in the background.
  };

  Mode mode = Mode::kSave;

  template <class Archive>
  void serialize(Archive& archive) {
    Round::serialize(archive);
    archive(mode);
  }
};

/// Errors: std::runtime_error when a file can't be written.
Spans checkpoint_spans(int ranks, const CheckpointRound& round);

/// Passes over a data set in memory, with random crops and flips. In a pass each item comes once.
struct LoaderRound : Round {
  /// Retinue's DataLoader with either kind of workers, and LibTorch's with LibTorch's operations.
  enum class Way : std::uint8_t { kThreads, kProcesses, kLibTorch };
  static constexpr int kItems = 10'000;
  static constexpr std::size_t kBatch = 64;
  static constexpr std::size_t kItemBytes = 3 * 32 * 32 * sizeof(float);

  Way way = Way::kThreads;
  int workers = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    Round::serialize(archive);
    archive(way, workers);
  }
};

/// Errors: std::runtime_error when a pass has other items.
Spans loader_spans(const LoaderRound& round, std::vector<Usage>* usage);

/// Tensors of `bytes` bytes from rank 0 to rank 1.
struct TensorRound : Round {
  enum class Way : std::uint8_t {
    kHandle,    ///< One in job memory, and the same back again; rank 1 writes to it.
    kFresh,     ///< A new one in private memory each time, which rank 0 wrote and rank 1 reads; one way.
    kCopy,      ///< Instead of that, rank 0 copies it to job memory that was used before,
    kCopyRead,  ///< or to job memory that rank 1 has read since.
  };

  Way way = Way::kHandle;
  Placement placement = Placement::kOneEach;

  template <class Archive>
  void serialize(Archive& archive) {
    Round::serialize(archive);
    archive(way, placement);
  }
};

/// Errors: std::runtime_error when a tensor arrives with other contents.
Spans tensor_queue_spans(const TensorRound& round);

}  // namespace retinue::bench
