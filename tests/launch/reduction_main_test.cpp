// Functions that reduce, in ranks whose program lies at different addresses.
#include <gtest/gtest.h>

#include <span>
#include <stdexcept>

#include "retinue/collective/communicator.h"
#include "retinue/launch/spawn.h"
#include "support/start_methods.h"

using retinue::Communicator;
using retinue::RankContext;
using retinue::test::EachStartMethod;

namespace {

struct Digits {
  long value;
  long scale;
};

Digits join(const Digits& left, const Digits& right) {
  return {left.value * right.scale + right.value, left.scale * right.scale};
}

Digits join_the_other_way(const Digits& left, const Digits& right) {
  return join(right, left);
}

void write_digits(RankContext& context) {
  Communicator group(context.world());
  Digits digits{group.rank() + 1, 10};
  group.all_reduce<join>(std::span(&digits, 1));
  if (digits.value != 123) throw std::runtime_error("the digits are wrong");
  bool is_refused = false;
  try {
    if (group.rank() == 1)
      group.all_reduce<join_the_other_way>(std::span(&digits, 1));
    else
      group.all_reduce<join>(std::span(&digits, 1));
  } catch (const retinue::CollectiveMismatch&) {
    is_refused = true;
  }
  if (!is_refused) throw std::runtime_error("two functions were taken for one");
}

TEST_P(EachStartMethod, ReducesByAFunctionOfTheProgram) {
  retinue::spawn<write_digits>({.nprocs = 3, .start_method = GetParam()});
}

INSTANTIATE_TEST_SUITE_P(Reduction, EachStartMethod, retinue::test::all_start_methods(),
                         retinue::test::start_method_name);

}  // namespace
