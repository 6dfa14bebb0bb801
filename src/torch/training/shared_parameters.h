#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string_view>
#include <vector>

#include "retinue/torch/process_group.h"
#include "torch/groups/rank_agreement.h"

namespace retinue {

/// Where tensors begin in one run of memory. Units: bytes.
struct FlatLayout {
  static constexpr std::size_t kAlignment = 64;

  /// `parts`: that many equal slices can be made of it.
  FlatLayout(const std::vector<at::Tensor>& tensors, int parts);

  std::vector<std::size_t> begins = {};
  std::size_t bytes = 0;
};

/// Moves tensors into `memory`, one run of `layout.bytes` bytes on their device, without changing what they are. With
/// `copies` their values go along; otherwise they get those that are there.
void move_into(const at::Tensor& memory, const FlatLayout& layout, const std::vector<at::Tensor>& tensors, bool copies);

/// One run of bytes in job memory that all ranks have; `call` is for errors. In a world of one it is memory of this
/// process.
///
/// Blocking: all ranks call it. Errors: SharedMemoryExhausted on the rank that has too little, and UsageError with its
/// text on the others.
at::Tensor make_shared_memory(std::string_view call, std::size_t bytes, const ProcessGroup& group,
                              const std::source_location& where);

/// Gives the ranks one copy of parameters, in job memory, with rank 0's values. In a world of one they stay where they
/// are.
///
/// Blocking: all ranks call it. Errors: UsageError where they share no memory; those of make_shared_memory().
void share_parameters(const std::vector<at::Tensor>& parameters, const ProcessGroup& group,
                      const std::source_location& where = std::source_location::current());

/// The parameters' gradients of all ranks, each in its own rank's memory, until an optimizer takes them.
class SharedGradients {
 public:
  SharedGradients(ProcessGroup group, std::vector<at::Tensor> parameters, const std::source_location& where);

  // Of the reducer.
  struct Change {
    std::size_t parameter;
    const char* what;
  };
  /// What the program did to a parameter that only the optimizer may write, if anything.
  std::optional<Change> change_of_parameters() const;
  /// All ranks gave a parameter the same values.
  void note_loaded(std::size_t parameter);
  /// Before a backward: gradients that nobody took are the parameters' again, and are added to. Those that the program
  /// set to zero are gone. False: some can't be added to, because the optimizer summed them.
  bool restore();
  /// Whether gradients of this rank are in another place than at the last exchange().
  bool has_moved();
  /// Blocking: all ranks learn where the gradients are.
  void exchange();
  /// Takes the gradients away from the parameters. In their place are tensors without memory, so that it fails to use
  /// what isn't averaged.
  void hide();

  // Of the optimizer.
  /// Whether there are gradients that no step took.
  bool is_pending() const { return is_pending_; }
  const ProcessGroup& group() const { return group_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  /// Begins the use of what is pending. Errors: UsageError where the program changed a gradient since its backward.
  void begin_use() const;
  /// Null where the rank has none for that parameter.
  std::byte* gradient(std::size_t parameter, int rank) const;
  /// Whether this rank's gradients are no more what its backward made of them, but sums over the ranks.
  bool has_sums() const { return has_sums_; }
  void note_sums() { has_sums_ = true; }
  /// One optimizer takes all gradients. Errors: UsageError if there is one already.
  void claim();
  void release() { is_claimed_ = false; }
  /// The gradients are gone. The other ranks are done with this one's.
  void consume();

 private:
  void note_versions();

  struct Hidden {
    at::Tensor gradient = {};  ///< Undefined: nothing is hidden.
    at::Tensor stand_in = {};
    std::int64_t version = 0;  ///< Of the stand-in.
  };

  ProcessGroup group_;
  std::source_location where_;
  std::vector<at::Tensor> parameters_;
  std::vector<Hidden> hidden_;           ///< By parameter.
  RankNumbers offsets_;                  ///< By rank, then by parameter: bytes in job memory, or a place here; 0: none.
  std::vector<std::int64_t> own_;        ///< The same of this rank, as they are now.
  std::vector<const void*> places_;      ///< Of parameters.
  std::vector<std::uint32_t> versions_;  ///< Of parameters, after the last backward or step; empty before the first.
  std::uintptr_t base_ = 0;              ///< Of job memory.
  bool is_pending_ = false;
  bool has_sums_ = false;
  bool is_claimed_ = false;
};

}  // namespace retinue
