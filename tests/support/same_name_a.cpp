#include "launch/same_name.h"
#include "retinue/launch/spawn.h"

static void train(retinue::RankContext& context, std::uint64_t offset) {
  *context.memory()->at<std::int64_t>(offset) = 'a';
}

void retinue::test::spawn_same_name_a(StartMethod method, std::uint64_t offset) {
  spawn<train>({.start_method = method}, offset);
}
