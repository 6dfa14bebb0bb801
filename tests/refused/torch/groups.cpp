// Process groups, with the backend in place of the options.
#include "retinue/launch/rank_context.h"
#include "retinue/torch/process_group.h"

void refused(const retinue::RankContext& context) {
  // What comes of a refused call is a group, so that its use says nothing more.
  auto group = retinue::init_process_group("gloo");  // refused: write init_process_group({.backend = "gloo"})
  retinue::init_process_group(context, "gloo");      // refused: write init_process_group(context, {.backend = "gloo"})
  retinue::barrier(group);
}
