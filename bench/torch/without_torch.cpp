#include "torch_contenders.h"

namespace retinue::bench {
namespace {

[[noreturn]] void refuse() {
  throw Unavailable("built without LibTorch: run scripts/bootstrap and configure again");
}

}  // namespace

Contender c10d_data_op(std::string name, int, const DataRound&, TimesOf) {
  return {std::move(name), []() -> Samples { refuse(); }};
}
Spans c10d_barrier_spans(int, const Round&) {
  refuse();
}
Spans c10d_init_spans(int, const Round&) {
  refuse();
}
double torch_spawn_us(int, StartMethod) {
  refuse();
}
Samples training_steps(int, const TrainingRound&) {
  refuse();
}
Contender bare_average(int, std::size_t) {
  return {"", []() -> Samples { refuse(); }};
}
Spans checkpoint_spans(int, const CheckpointRound&) {
  refuse();
}
Spans loader_spans(const LoaderRound&, std::vector<Usage>*) {
  refuse();
}
Spans tensor_queue_spans(const TensorRound&) {
  refuse();
}

}  // namespace retinue::bench
