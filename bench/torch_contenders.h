#pragma once

#include <array>
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

/// Layers of a multi-layer perceptron; the same as in bench/peers/torch_gloo.py.
struct Mlp {
  const char* name;
  std::array<int, 5> widths;  ///< The last ones may be 0.

  std::size_t parameter_bytes() const;
};
inline constexpr Mlp kMlps[] = {{"small", {784, 1024, 1024, 10, 0}}, {"large", {1024, 4096, 3072, 1024, 10}}};

struct DdpRound : Round {
  enum class Mode : std::uint8_t {
    kLocal,  ///< Unconnected processes, each for itself, at the same time.
    kDdp,
  };

  int mlp = 0;  ///< Index of kMlps.
  Mode mode = Mode::kLocal;

  template <class Archive>
  void serialize(Archive& archive) {
    Round::serialize(archive);
    archive(mlp, mode);
  }
};

/// Training steps of each rank, batch 32, one thread.
/// Errors: std::runtime_error when the gradients are not the mean over the ranks, or the parameters differ.
Spans ddp_spans(int ranks, const DdpRound& round);

inline constexpr int kMlpOfCheckpoints = 1;  ///< Index of kMlps.

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
