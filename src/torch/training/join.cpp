#include "retinue/torch/join.h"

#include "retinue/base/error.h"

namespace retinue {

void join(const JoinOptions& options, const std::function<void()>& body) {
  if (options.models.empty()) throw UsageError("join: there is no model in options.models");
  const JoinMode mode{.divides_by_all = options.divide_by_initial_world_size,
                      .throws = options.throw_on_early_termination};
  std::size_t begun = 0;
  const auto end_all = [&] {
    while (begun > 0) options.models[--begun].core().end_join();
  };
  try {
    for (const JoinedModel& model : options.models) {
      model.core().begin_join(mode);
      ++begun;
    }
    body();
    // The ranks that go on make a backward of each model in turn.
    for (bool others_go_on = true; others_go_on;)
      for (const JoinedModel& model : options.models)
        if (!(others_go_on = model.core().shadow_backward())) break;
    for (const JoinedModel& model : options.models) model.core().copy_state_of_last();
  } catch (...) {
    end_all();
    throw;
  }
  end_all();
}

}  // namespace retinue
