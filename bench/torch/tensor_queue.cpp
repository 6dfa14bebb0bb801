#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstring>

#include "retinue/collective/communicator.h"
#include "retinue/ipc/queue.h"
#include "retinue/torch/shared_tensor.h"
#include "retinue/torch/tensor_archive.h"
#include "torch_contenders.h"

namespace retinue::bench {
namespace {

struct TensorWork : TensorRound {
  Queue<at::Tensor> there;
  Queue<at::Tensor> back;

  template <class Archive>
  void serialize(Archive& archive) {
    TensorRound::serialize(archive);
    archive(there, back);
  }
};

std::int64_t count_of(const Round& round) {
  return static_cast<std::int64_t>(round.bytes / sizeof(std::int32_t));
}

/// Every element is `value`, but the first, which is `first`.
void check_contents(const at::Tensor& tensor, std::int32_t first, std::int32_t value) {
  const std::span values(tensor.data_ptr<std::int32_t>(), static_cast<std::size_t>(tensor.numel()));
  const auto wrong =
      std::count_if(values.begin() + 1, values.end(), [value](std::int32_t other) { return other != value; });
  if (wrong != 0 || values.front() != first) throw std::runtime_error("queue: a tensor arrived with other contents");
}

void handle_rank(const RankContext& context, const TensorWork& round) {
  Queue<at::Tensor> there = round.there;
  Queue<at::Tensor> back = round.back;
  if (context.rank() == 0) {
    const at::Tensor tensor = shared_empty({count_of(round)}, torch::kInt32);
    at::Tensor returned;
    measure_iterations(
        round, context, [&](int i) { tensor.fill_(i); },
        [&] {
          there.put(tensor);
          returned = back.get();
        },
        [&](int i) { check_contents(returned, i + 1, i); });
    return;
  }
  measure_iterations(
      round, context, [](int) {},
      [&] {
        const at::Tensor tensor = there.get();
        ++*tensor.data_ptr<std::int32_t>();
        back.put(tensor);
      },
      [](int) {});
}

/// Rank 1 lets its tensor go before rank 0 makes the next one.
void fresh_rank(const RankContext& context, const TensorWork& round) {
  Queue<at::Tensor> queue = round.there;
  Communicator group(context.world());
  const bool is_read = round.way == TensorRound::Way::kCopyRead;
  const bool copies = is_read || round.way == TensorRound::Way::kCopy;
  const bool sends = context.rank() == 0;
  at::Tensor warm = copies && sends ? shared_zeros({count_of(round)}, torch::kInt32) : at::Tensor();
  if (is_read && sends) queue.put(warm);
  if (is_read && !sends) warm = queue.get();
  at::Tensor tensor;
  measure_iterations(
      round, context,
      [&](int i) {
        tensor = sends ? torch::full({count_of(round)}, i, torch::kInt32) : at::Tensor();
        group.barrier();
      },
      [&] {
        if (copies) {
          if (sends) std::memcpy(warm.data_ptr(), tensor.data_ptr(), round.bytes);
        } else if (sends) {
          queue.put(tensor);
        } else {
          tensor = queue.get();
        }
      },
      [&](int i) {
        if (is_read) group.barrier();
        if (copies && (sends || is_read)) check_contents(warm, i, i);
        if (!copies && !sends) check_contents(tensor, i, i);
        if (!sends) tensor = at::Tensor();
        group.barrier();
      });
}

void tensor_rank(RankContext& context, const TensorWork& round) {
  torch::set_num_threads(1);
  take_place(round.placement, context.rank());
  round.way == TensorRound::Way::kHandle ? handle_rank(context, round) : fresh_rank(context, round);
}

}  // namespace

Spans tensor_queue_spans(const TensorRound& round) {
  TensorWork work{round, Queue<at::Tensor>({.capacity = 8}), Queue<at::Tensor>({.capacity = 8})};
  return measure_round<tensor_rank>(2, work);
}

}  // namespace retinue::bench
