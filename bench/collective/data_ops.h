#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench.h"
#include "retinue/collective/communicator.h"
#include "samples.h"

/// The collectives that move data, as they are measured: what each rank gives, and what must come out where.
/// bench/peers/mpi_ranks.c does the same with MPI's.
namespace retinue::bench {

/// One rank's side of a collective. A block has `count` elements.
struct Buffers {
  float* input = nullptr;
  float* output = nullptr;  ///< The input itself where the collective works in place.
  std::size_t count = 0;

  std::span<const float> input_of(std::size_t blocks) const { return {input, blocks * count}; }
  std::span<float> output_of(std::size_t blocks) const { return {output, blocks * count}; }
};

/// What a block of a result is: the sum of block `block` of ranks `first` to `last`.
struct Source {
  int first;
  int last;
  int block;
};

struct DataOp {
  enum class Blocks : std::uint8_t { kNone, kOne, kOnePerRank };
  /// Of rank 0, which is the root, and of any other rank.
  struct Side {
    Blocks root;
    Blocks others;
  };

  const char* name;  ///< The case's, and the one that mpi_ranks.c knows.
  Side input;
  Side output;
  bool is_in_place = false;
  /// A rank may leave before the others have come: a barrier comes before each call, untimed, or ranks would drift
  /// apart.
  bool leaves_early = false;
  Source (*source)(int rank, int ranks, int block);
  void (*call)(Communicator& group, const Buffers& buffers);
  bool is_in_c10d = true;  ///< Measured through c10d's face and over gloo, too.

  std::size_t inputs_of(int rank, int ranks) const;
  std::size_t outputs_of(int rank, int ranks) const;
};

struct DataRound : Round {
  std::string op;

  template <class Archive>
  void serialize(Archive& archive) {
    Round::serialize(archive);
    archive(op);
  }
};

/// A row here is a case of retinue-bench.
std::span<const DataOp> data_ops();
/// Errors: std::out_of_range.
const DataOp& data_op(const std::string& name);

/// From the last rank's entry to the last exit. Where a barrier comes before a call and ranks outnumber CPUs, from the
/// first rank's entry: a root that leaves that barrier before its leaves has done its part before the last of them
/// enters, and what they wait for would not be seen.
TimesOf times_of(const DataOp& op, int ranks);

/// Rewrites a rank's inputs, and checks its outputs, in every place.
class VerifiedBuffers {
 public:
  VerifiedBuffers(const DataOp& op, const RankContext& context, const Buffers& buffers)
      : op_(op), rank_(context.rank()), ranks_(context.world_size()), buffers_(buffers) {}

  void rewrite(int iteration) const;
  /// Errors: std::runtime_error with the number of wrong elements.
  void check(int iteration) const;

 private:
  const DataOp& op_;
  int rank_;
  int ranks_;
  Buffers buffers_;
};

/// Measures `call` on buffers that are rewritten before and checked after every call. `gather` comes right before it.
template <class Gather, class Call>
void measure_verified(const DataOp& op, const Round& round, const RankContext& context, const Buffers& buffers,
                      Gather&& gather, Call&& call) {
  const VerifiedBuffers verified(op, context, buffers);
  measure_iterations(
      round, context,
      [&](int i) {
        verified.rewrite(i);
        gather();
      },
      call, [&](int i) { verified.check(i); });
}

}  // namespace retinue::bench
