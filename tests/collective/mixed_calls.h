#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "collective/exchange_model.h"
#include "retinue/collective/request.h"

/// Calls for GroupMix. All ranks draw the same from `random`.
namespace retinue::test {

/// An exchange that is begun here and checked once it is done. Its values are bytes, or 16-bit numbers where it
/// reduces.
class BegunExchange {
 public:
  BegunExchange(Communicator& group, const ExchangeCase& c)
      : case_(c), rank_(group.rank()), size_(group.size()), reduces_(reduces(c.kind)) {
    request_ = reduces_ ? begin<std::int16_t>(group) : begin<std::uint8_t>(group);
  }

  const Request& request() const { return request_; }
  /// Blocking: until it is done.
  void check() const {
    request_.wait();
    reduces_ ? check_elements<std::int16_t>() : check_elements<std::uint8_t>();
  }

 private:
  template <typename T>
  Request begin(Communicator& group) {
    const auto size = static_cast<std::size_t>(size_);
    const bool in_place = case_.kind == CollectiveKind::kAllReduce || case_.kind == CollectiveKind::kBroadcast;
    input_.resize(input_parts(case_.kind, size) * case_.count * sizeof(T));
    output_.resize(in_place ? 0 : output_parts(case_.kind, size) * case_.count * sizeof(T));
    const ComputedValues<T> values(case_);
    if (has_an_input(case_, rank_)) write_elements<T>(input_.data(), values.given(rank_, 0, input_.size() / sizeof(T)));
    return group.start(call_of<T>(case_, input_.data(), in_place ? input_.data() : output_.data()));
  }

  template <typename T>
  void check_elements() const {
    if (!has_an_output(case_, rank_)) return;
    const ComputedValues<T> values(case_);
    const std::vector<std::byte>& result = output_.empty() ? input_ : output_;
    EXPECT_EQ(count_wrong_parts<T>(result.data(), values, case_, size_, rank_), 0u)
        << name_of(case_.kind) << ", begun, of " << case_.count << " elements, root " << case_.root;
  }

  ExchangeCase case_;
  int rank_;
  int size_;
  bool reduces_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
  Request request_;  ///< Last: it ends before its buffers.
};

/// Up to five buffers, some of them empty.
inline void check_coalesced(Communicator& group, std::mt19937& random) {
  std::vector<std::vector<std::int32_t>> data(1 + random() % 5);
  std::vector<Bytes> buffers;
  const std::int32_t first = static_cast<std::int32_t>(random() % 1000);
  for (std::vector<std::int32_t>& each : data) {
    each.assign(random() % (random() % 4 == 0 ? 9000 : 40), first + group.rank());
    buffers.push_back(std::as_writable_bytes(std::span(each)));
  }
  group.all_reduce_coalesced(buffers, Dtype::kInt32, ReduceOp::kSum);
  const std::int32_t expected = group.size() * first + group.size() * (group.size() - 1) / 2;
  for (const std::vector<std::int32_t>& each : data)
    EXPECT_EQ(std::count(each.begin(), each.end(), expected), static_cast<std::ptrdiff_t>(each.size()));
}

/// all_to_all of parts that are each of a size of its own.
inline void check_uneven(Communicator& group, std::mt19937& random) {
  const std::uint64_t seed = random();
  const std::size_t most = random() % 4 == 0 ? 4000 : 60;
  const auto count = [&](int from, int to) { return hash(seed, from, static_cast<std::size_t>(to)) % most; };
  std::vector<std::vector<std::uint16_t>> given;
  std::vector<std::vector<std::uint16_t>> taken;
  for (int rank = 0; rank < group.size(); ++rank) {
    given.emplace_back(count(group.rank(), rank), static_cast<std::uint16_t>(hash(seed + 1, group.rank(), rank)));
    taken.emplace_back(count(rank, group.rank()));
  }
  std::vector<ConstBytes> inputs;
  std::vector<Bytes> outputs;
  for (auto& each : given) inputs.push_back(std::as_bytes(std::span(each)));
  for (auto& each : taken) outputs.push_back(std::as_writable_bytes(std::span(each)));
  group.run(CollectiveCall::all_to_all(inputs, outputs));
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto& part = taken[static_cast<std::size_t>(rank)];
    const auto expected = static_cast<std::uint16_t>(hash(seed + 1, rank, static_cast<std::size_t>(group.rank())));
    EXPECT_EQ(std::count(part.begin(), part.end(), expected), static_cast<std::ptrdiff_t>(part.size()));
  }
}

/// In rank order, or the result is another.
inline void check_function(Communicator& group, std::mt19937& random) {
  const std::int64_t first = random();
  std::vector<std::int64_t> data(random() % (random() % 4 == 0 ? 20000 : 30), first * (group.rank() + 1));
  group.all_reduce<std::minus<std::int64_t>{}>(std::span(data));
  std::int64_t expected = first;
  for (int rank = 1; rank < group.size(); ++rank) expected -= first * (rank + 1);
  EXPECT_EQ(std::count(data.begin(), data.end(), expected), static_cast<std::ptrdiff_t>(data.size()));
}

}  // namespace retinue::test
