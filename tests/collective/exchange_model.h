#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "collective/reduction_check.h"
#include "retinue/collective/communicator.h"

/// What the collectives must give, told from what each rank gives: written without a look at how they do it.
namespace retinue::test {

struct ExchangeCase {
  CollectiveKind kind;
  std::size_t count;  ///< Elements of one part.
  Place input_place = Place::kPrivate;
  Place output_place = Place::kPrivate;
  bool in_place = false;
  int root = 0;
  ReduceOp op = ReduceOp::kSum;
  std::uint64_t seed = 0;
};

constexpr CollectiveKind kDataKinds[] = {
    CollectiveKind::kAllReduce, CollectiveKind::kBroadcast, CollectiveKind::kAllGather,
    CollectiveKind::kReduce,    CollectiveKind::kGather,    CollectiveKind::kScatter,
    CollectiveKind::kAllToAll,  CollectiveKind::kScan,      CollectiveKind::kReduceScatter};

inline bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce || kind == CollectiveKind::kGather ||
         kind == CollectiveKind::kScatter;
}
inline bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kScan;
}
inline bool has_an_input(const ExchangeCase& c, int rank) {
  return (c.kind != CollectiveKind::kScatter && c.kind != CollectiveKind::kBroadcast) || rank == c.root;
}
inline bool has_an_output(const ExchangeCase& c, int rank) {
  return (c.kind != CollectiveKind::kReduce && c.kind != CollectiveKind::kGather) || rank == c.root;
}
inline std::size_t input_parts(CollectiveKind kind, std::size_t size) {
  return kind == CollectiveKind::kScatter || kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kReduceScatter
             ? size
             : 1;
}
inline std::size_t output_parts(CollectiveKind kind, std::size_t size) {
  return kind == CollectiveKind::kGather || kind == CollectiveKind::kAllGather || kind == CollectiveKind::kAllToAll
             ? size
             : 1;
}

/// What ranks give, and what comes of it: computed anew for each case.
template <typename T>
class ComputedValues {
 public:
  explicit ComputedValues(const ExchangeCase& c) : case_(c) {}

  std::vector<T> given(int rank, std::size_t first, std::size_t count) const {
    return elements<T>(case_.seed, rank, first, count);
  }
  /// Of ranks 0 to before `ranks`.
  std::vector<T> reduced(int ranks, std::size_t first, std::size_t count) const {
    return reduced_elements<T>(case_.op, case_.seed, ranks, first, count);
  }

 private:
  ExchangeCase case_;
};

/// Part `part` of what `rank` must get.
template <typename Values>
auto expected_part(const Values& values, const ExchangeCase& c, int size, int rank, std::size_t part) {
  const std::size_t own = static_cast<std::size_t>(rank) * c.count;
  const auto from = static_cast<int>(part);
  switch (c.kind) {
    case CollectiveKind::kBroadcast:
      return values.given(c.root, 0, c.count);
    case CollectiveKind::kScatter:
      return values.given(c.root, own, c.count);
    case CollectiveKind::kGather:
    case CollectiveKind::kAllGather:
      return values.given(from, 0, c.count);
    case CollectiveKind::kAllToAll:
      return values.given(from, own, c.count);
    case CollectiveKind::kScan:
      return values.reduced(rank + 1, 0, c.count);
    case CollectiveKind::kReduceScatter:
      return values.reduced(size, own, c.count);
    default:
      return values.reduced(size, 0, c.count);
  }
}

/// How many elements of what `rank` got, at `output`, aren't what it must get.
template <typename T, typename Values>
std::size_t count_wrong_parts(const std::byte* output, const Values& values, const ExchangeCase& c, int size,
                              int rank) {
  std::size_t wrong = 0;
  for (std::size_t part = 0; part < output_parts(c.kind, static_cast<std::size_t>(size)); ++part)
    wrong += count_wrong<T>(output + part * c.count * sizeof(T), expected_part(values, c, size, rank, part));
  return wrong;
}

template <typename T>
CollectiveCall call_of(const ExchangeCase& c, const void* input, void* output) {
  const std::size_t bytes = c.count * sizeof(T);
  switch (c.kind) {
    case CollectiveKind::kAllReduce:
      return CollectiveCall::all_reduce(output, c.count, DtypeOf<T>::value, c.op);
    case CollectiveKind::kBroadcast:
      return CollectiveCall::broadcast(output, bytes, c.root);
    case CollectiveKind::kAllGather:
      return CollectiveCall::all_gather(input, output, bytes);
    case CollectiveKind::kReduce:
      return CollectiveCall::reduce(input, output, c.count, DtypeOf<T>::value, c.op, c.root);
    case CollectiveKind::kGather:
      return CollectiveCall::gather(input, output, bytes, c.root);
    case CollectiveKind::kScatter:
      return CollectiveCall::scatter(input, output, bytes, c.root);
    case CollectiveKind::kReduceScatter:
      return CollectiveCall::reduce_scatter(input, output, c.count, DtypeOf<T>::value, c.op);
    case CollectiveKind::kAllToAll:
      return CollectiveCall::all_to_all(input, output, bytes);
    default:
      return CollectiveCall::scan(input, output, c.count, DtypeOf<T>::value, c.op);
  }
}

/// Where the input lies in the output, or the output in the input, when a rank's own data are in place.
template <typename T>
void place_in_place(const ExchangeCase& c, int rank, std::byte*& input, std::byte*& output) {
  const std::size_t own = static_cast<std::size_t>(rank) * c.count * sizeof(T);
  if (c.kind == CollectiveKind::kAllGather || c.kind == CollectiveKind::kGather) {
    input = output + own;
  } else if (c.kind == CollectiveKind::kScatter || c.kind == CollectiveKind::kReduceScatter) {
    output = input + own;
  } else {
    output = input;
  }
}

/// Makes one call and compares every bit of its result with what comes of `values`.
template <typename T, typename Values>
void check_exchange(Communicator& communicator, ExchangeCase c, const Values& values) {
  const int rank = communicator.rank();
  const auto size = static_cast<std::size_t>(communicator.size());
  if (c.kind == CollectiveKind::kAllReduce || c.kind == CollectiveKind::kBroadcast) c.in_place = true;
  const bool gives = has_an_input(c, rank);
  const bool takes = has_an_output(c, rank);
  const std::size_t given = input_parts(c.kind, size) * c.count;
  const PlacedBuffer input_buffer(communicator.group(), given * sizeof(T), c.input_place);
  const PlacedBuffer output_buffer(communicator.group(), output_parts(c.kind, size) * c.count * sizeof(T),
                                   c.output_place);
  std::byte* input = input_buffer.data();
  std::byte* output = output_buffer.data();
  const bool in_place = c.in_place && ((gives && takes) || c.kind == CollectiveKind::kBroadcast);
  if (in_place) place_in_place<T>(c, rank, input, output);
  if (gives) write_elements<T>(input, values.given(rank, 0, given));
  const CollectiveCall call = call_of<T>(c, gives || in_place ? input : nullptr, takes ? output : nullptr);
  communicator.run(c.op == ReduceOp::kPremulSum ? call.premultiplied(factor_of_rank(rank)) : call);
  if (gives && !in_place && given > 0) {
    const auto& before = values.given(rank, 0, given);
    EXPECT_EQ(std::memcmp(input, before.data(), given * sizeof(T)), 0) << "the input was changed";
    std::memset(input, 0xee, given * sizeof(T));  // May be changed as soon as the call returned.
  }
  const std::size_t wrong = takes ? count_wrong_parts<T>(output, values, c, communicator.size(), rank) : 0;
  EXPECT_EQ(wrong, 0u) << name_of(c.kind) << " (" << name_of(c.op) << " of " << name_of(DtypeOf<T>::value) << ") of "
                       << c.count << " x " << sizeof(T) << " bytes, places " << static_cast<int>(c.input_place)
                       << " and " << static_cast<int>(c.output_place) << ", in place " << in_place << ", root "
                       << c.root << ", rank " << rank << " of " << size;
}

template <typename T>
void check_exchange(Communicator& communicator, const ExchangeCase& c) {
  check_exchange<T>(communicator, c, ComputedValues<T>(c));
}

/// Of floats where the kind reduces, of bytes where it copies.
inline void check_exchange_of_its_kind(Communicator& communicator, const ExchangeCase& c) {
  if (reduces(c.kind)) {
    check_exchange<float>(communicator, c);
  } else {
    check_exchange<std::uint8_t>(communicator, c);
  }
}

}  // namespace retinue::test
