#include "fuzz/corpus.h"

namespace retinue::fuzz {
namespace {

INSTANTIATE_TEST_SUITE_P(Targets, Corpus, testing::ValuesIn(kTargets), name_of_target);

}  // namespace
}  // namespace retinue::fuzz
