#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/distributed_sampler.h"
#include "support/says.h"
#include "support/usage_error.h"

namespace retinue {
namespace {

using test::says;
using test::usage_error_of;

struct GoldenCase {
  std::size_t dataset_size;
  int num_replicas;
  int rank;
  bool shuffle;
  std::int64_t seed;
  std::int64_t epoch;
  bool drop_last;
  std::size_t count;
  std::uint64_t digest;
};

constexpr GoldenCase kGolden[] = {
#include "sampler_golden.inc"
};

std::uint64_t fnv1a(const std::vector<std::size_t>& values) {
  std::uint64_t digest = 0xcbf29ce484222325u;
  for (const std::size_t value : values) {
    for (int shift = 0; shift < 64; shift += 8) digest = (digest ^ (value >> shift & 0xff)) * 0x100000001b3u;
  }
  return digest;
}

std::vector<std::size_t> drain(DistributedSampler& sampler, std::size_t batch_size) {
  std::vector<std::size_t> all;
  while (auto batch = sampler.next(batch_size)) {
    EXPECT_FALSE(batch->empty());
    EXPECT_LE(batch->size(), batch_size);
    all.insert(all.end(), batch->begin(), batch->end());
  }
  return all;
}

TEST(DistributedSampler, YieldsWhatPyTorchYields) {
  ASSERT_GT(std::size(kGolden), 500u);
  for (const GoldenCase& golden : kGolden) {
    SCOPED_TRACE(testing::Message() << "size " << golden.dataset_size << " rank " << golden.rank << " of "
                                    << golden.num_replicas << " seed " << golden.seed << " epoch " << golden.epoch);
    DistributedSampler sampler(golden.dataset_size, {.num_replicas = golden.num_replicas,
                                                     .rank = golden.rank,
                                                     .shuffle = golden.shuffle,
                                                     .seed = golden.seed,
                                                     .drop_last = golden.drop_last});
    sampler.set_epoch(golden.epoch);
    const auto indices = drain(sampler, 7);
    EXPECT_EQ(indices.size(), golden.count);
    EXPECT_EQ(sampler.size(), golden.count);
    EXPECT_EQ(fnv1a(indices), golden.digest);
  }
}

TEST(DistributedSampler, RanksShareTheDataSetWithoutOverlap) {
  std::vector<int> seen(100, 0);
  for (int rank = 0; rank < 4; ++rank) {
    DistributedSampler sampler(100, {.num_replicas = 4, .rank = rank, .seed = 3});
    for (const std::size_t index : drain(sampler, 10)) ++seen.at(index);
  }
  EXPECT_EQ(seen, std::vector<int>(100, 1));
}

TEST(DistributedSampler, CopiesShareTheEpoch) {
  DistributedSampler mine(64, {.num_replicas = 2, .rank = 1});
  DistributedSampler loaders = mine;
  const auto first = drain(loaders, 64);
  mine.set_epoch(1);
  loaders.reset();
  const auto second = drain(loaders, 64);
  EXPECT_NE(first, second);
  mine.set_epoch(0);
  loaders.reset();
  EXPECT_EQ(drain(loaders, 64), first);
}

TEST(DistributedSampler, ServesADataLoader) {
  const auto values = torch::arange(50, torch::kFloat32);
  auto dataset =
      torch::data::datasets::TensorDataset(values).map(torch::data::transforms::Stack<torch::data::TensorExample>());
  DistributedSampler sampler(50, {.num_replicas = 2, .rank = 0, .seed = 5});
  auto loader = torch::data::make_data_loader(dataset, sampler, torch::data::DataLoaderOptions().batch_size(8));
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    sampler.set_epoch(epoch);
    DistributedSampler expected(50, {.num_replicas = 2, .rank = 0, .seed = 5});
    expected.set_epoch(epoch);
    std::vector<std::size_t> loaded;
    for (const auto& batch : *loader) {
      for (std::int64_t i = 0; i < batch.data.numel(); ++i)
        loaded.push_back(static_cast<std::size_t>(batch.data[i].item<float>()));
    }
    EXPECT_EQ(loaded, drain(expected, 50));
  }
}

TEST(DistributedSampler, TakesANewSizeAtReset) {
  DistributedSampler sampler(10, {.num_replicas = 2, .rank = 0, .shuffle = false});
  EXPECT_EQ(drain(sampler, 10).size(), 5u);
  sampler.reset(20);
  EXPECT_EQ(drain(sampler, 100), (std::vector<std::size_t>{0, 2, 4, 6, 8, 10, 12, 14, 16, 18}));
}

TEST(DistributedSampler, GoesOnWhereASavedOneStopped) {
  DistributedSampler saved(30, {.num_replicas = 2, .rank = 1, .seed = 9});
  saved.set_epoch(4);
  saved.reset();
  saved.next(6);
  std::stringstream file;
  torch::serialize::OutputArchive out;
  saved.save(out);
  out.save_to(file);

  DistributedSampler loaded(30, {.num_replicas = 2, .rank = 1, .seed = 9});
  torch::serialize::InputArchive in;
  in.load_from(file);
  loaded.load(in);
  EXPECT_EQ(loaded.epoch(), 4);
  const auto rest = drain(loaded, 100);
  EXPECT_EQ(rest.size(), 9u);
  EXPECT_EQ(rest, drain(saved, 100));

  DistributedSampler smaller(4, {.num_replicas = 2, .rank = 1});
  torch::serialize::InputArchive again;
  file.clear();
  file.seekg(0);
  again.load_from(file);
  EXPECT_THROW(smaller.load(again), UsageError);
}

using Values = torch::data::datasets::TensorDataset;

/// A loader of the values 0, 1, ... with workers, which take batches before they are asked for.
auto loader_of(std::int64_t size, const DistributedSampler& sampler) {
  auto dataset =
      Values(torch::arange(size, torch::kInt64)).map(torch::data::transforms::Stack<torch::data::TensorExample>());
  return torch::data::make_data_loader(dataset, sampler, torch::data::DataLoaderOptions().batch_size(4).workers(2));
}

/// What a loop gets that ends after `most` values.
template <typename Loader>
std::vector<std::size_t> loop(Loader& loader, std::size_t most = SIZE_MAX) {
  std::vector<std::size_t> got;
  for (const auto& batch : loader) {
    for (std::int64_t i = 0; i < batch.data.numel(); ++i)
      got.push_back(static_cast<std::size_t>(batch.data[i].template item<std::int64_t>()));
    if (got.size() >= most) break;
  }
  return got;
}

std::vector<std::size_t> behind(const std::vector<std::size_t>& all, std::size_t count) {
  return {all.begin() + static_cast<std::ptrdiff_t>(count), all.end()};
}

TEST(DistributedSampler, ResumesInTheMidstOfALoadersPass) {
  const DistributedSamplerOptions options{.num_replicas = 2, .rank = 1, .seed = 9};
  DistributedSampler whole(50, options);
  whole.set_epoch(3);
  const auto all = drain(whole, 50);

  DistributedSampler sampler(50, options);
  sampler.set_epoch(3);
  auto loader = loader_of(50, sampler);
  const auto before = loop(*loader, 8);
  EXPECT_EQ(before.size(), 8u);
  const DistributedSamplerState state = sampler.state(before.size());
  EXPECT_EQ(state.epoch, 3);
  EXPECT_EQ(state.consumed, 16u);

  DistributedSampler resumed(50, options);
  auto resumed_loader = loader_of(50, resumed);
  resumed.resume_at(state);
  EXPECT_EQ(resumed.epoch(), 3);
  resumed.set_epoch(3);  // As a loop does that begins with the saved epoch.
  const auto after = loop(*resumed_loader, 4);
  EXPECT_EQ(after, std::vector<std::size_t>(all.begin() + 8, all.begin() + 12));
  EXPECT_EQ(resumed.state(after.size()).consumed, 24u) << "of the epoch, not of the pass";
  auto next_loader = loader_of(50, resumed);
  EXPECT_EQ(loop(*next_loader), all) << "the next pass is whole";
  resumed.resume_at(12);
  EXPECT_EQ(loop(*next_loader), behind(all, 12));
  resumed.resume_at(12);
  resumed.set_epoch(4);
  EXPECT_EQ(loop(*next_loader).size(), 25u) << "the next epoch is whole";
}

TEST(DistributedSampler, LoadsForALoaderThatHasACopy) {
  const DistributedSamplerOptions options{.num_replicas = 2, .rank = 0, .seed = 9};
  DistributedSampler saved(50, options);
  saved.set_epoch(2);
  saved.next(8);
  torch::serialize::OutputArchive out;
  saved.save(out);
  std::stringstream file;
  out.save_to(file);
  DistributedSampler sampler(50, options);
  auto loader = loader_of(50, sampler);
  torch::serialize::InputArchive in;
  in.load_from(file);
  sampler.load(in);
  EXPECT_EQ(loop(*loader), drain(saved, 50));
}

TEST(DistributedSampler, ResumesWithAnotherNumberOfRanks) {
  for (const bool drop_last : {false, true})
    for (const std::size_t size : {1, 2, 7, 24, 50})
      for (const int before : {1, 2, 3, 4})
        for (const int after : {1, 2, 3, 5})
          for (std::size_t consumed = 0;; ++consumed) {
            std::vector<int> seen(size, 0);
            DistributedSamplerState state;
            bool is_over = false;
            for (int rank = 0; rank < before; ++rank) {
              DistributedSampler sampler(size,
                                         {.num_replicas = before, .rank = rank, .seed = 5, .drop_last = drop_last});
              sampler.set_epoch(6);
              is_over = consumed > sampler.size();
              const auto part = sampler.next(consumed);
              for (const std::size_t index : part.value_or(std::vector<std::size_t>())) ++seen[index];
              state = sampler.state(consumed);
            }
            if (is_over) break;
            std::size_t rest = 0;
            for (int rank = 0; rank < after; ++rank) {
              DistributedSampler sampler(size,
                                         {.num_replicas = after, .rank = rank, .seed = 5, .drop_last = drop_last});
              sampler.resume_at(state);
              const auto part = drain(sampler, 3);
              if (rank == 0) rest = part.size();
              EXPECT_EQ(part.size(), rest) << "ranks have equally many";
              for (const std::size_t index : part) ++seen[index];
            }
            SCOPED_TRACE(testing::Message() << size << " items, " << before << " ranks, then " << after << " after "
                                            << consumed << ", drop_last " << drop_last);
            const auto never = std::ranges::count(seen, 0);
            EXPECT_LT(never, drop_last ? before + after : 1);
            EXPECT_LT(std::accumulate(seen.begin(), seen.end(), 0) + never - static_cast<std::int64_t>(size),
                      drop_last ? 1 : before + after);
          }
}

TEST(DistributedSampler, RefusesToResumeBehindTheEnd) {
  DistributedSampler sampler(50, {.num_replicas = 2, .rank = 0});
  EXPECT_NO_THROW(sampler.resume_at(25));
  EXPECT_TRUE(says(usage_error_of([&] { sampler.resume_at(26); }), "an epoch has 25 indices for each rank"));
  EXPECT_TRUE(says(usage_error_of([&] { sampler.resume_at({.epoch = 1, .consumed = 51}); }),
                   "51 indices were consumed, but the data set has 50"));
  EXPECT_EQ(sampler.epoch(), 0);
}

TEST(DistributedSampler, RefusesARankOutsideOfTheWorld) {
  EXPECT_THROW(DistributedSampler(10, {.num_replicas = 2, .rank = 2}), UsageError);
  EXPECT_THROW(DistributedSampler(10, {.num_replicas = 2, .rank = -1}), UsageError);
  for (const int count : {0, -2})
    EXPECT_TRUE(says(usage_error_of([&] { DistributedSampler(10, {.num_replicas = count, .rank = 0}); }),
                     "num_replicas is " + std::to_string(count)));
  EXPECT_THROW(DistributedSampler(10, ProcessGroup(), {}), UsageError);
}

TEST(DistributedSampler, KnowsItsPlaceFromAGroup) {
  const ProcessGroup alone = init_process_group();
  DistributedSampler sampler(7, alone, {.shuffle = false, .seed = 0});
  std::vector<std::size_t> all(7);
  std::iota(all.begin(), all.end(), 0u);
  EXPECT_EQ(drain(sampler, 3), all);
}

}  // namespace
}  // namespace retinue
