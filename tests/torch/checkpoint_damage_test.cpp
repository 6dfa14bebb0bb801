// Files that can't be loaded: each is one error, on all ranks, that names the file and what is wrong in it.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "support/ranks.h"
#include "support/says.h"
#include "torch/checkpoint/crc32.h"
#include "torch/checkpoint_scene.h"

namespace retinue {
namespace {

namespace fs = std::filesystem;
using test::contents_of;
using test::error_of;
using test::expect_same_future;
using test::Folder;
using test::group_of;
using test::has_same_bits;
using test::make_adamw;
using test::make_sgd;
using test::run_ranks;
using test::says;
using test::Trained;

class CheckpointDamage : public testing::Test {
 protected:
  CheckpointDamage() {
    run_ranks(2, [&](const JobGroup& members) {
      Trained trained(1, make_adamw, 2);
      Checkpoint(folder_.path(), group_of(members)).save(2, trained.state());
    });
    whole_ = contents_of(path_);
  }

  void write(const std::string& contents) const { std::ofstream(path_, std::ios::binary) << contents; }

  /// The error of both ranks' load_newest(); nothing has changed after it.
  std::string error_of_loading() const {
    const Folder results;
    run_ranks(2, [&](const JobGroup& members) {
      Trained loaded(7, make_adamw, 1);
      Checkpoint checkpoint(folder_.path(), group_of(members));
      const std::string text = error_of([&] { checkpoint.load_newest(loaded.state()); });
      std::ofstream(results.path() + "/" + std::to_string(members.rank)) << text;
      Trained untouched(7, make_adamw, 1);
      expect_same_future(untouched, loaded);
    });
    EXPECT_EQ(contents_of(results.path() + "/0"), contents_of(results.path() + "/1"));
    return contents_of(results.path() + "/0");
  }

  /// Where the elements of a tensor are.
  std::size_t place_of(const at::Tensor& tensor) const {
    const at::Tensor plain = tensor.detach().contiguous();
    return whole_.find(std::string(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes()));
  }

  Folder folder_;
  std::string path_ = folder_.path() + "/step-000000002.pt";
  std::string whole_;
};

TEST_F(CheckpointDamage, AFlippedBitOfATensor) {
  const Trained trained(1, make_adamw, 2);
  std::string damaged = whole_;
  damaged[place_of(trained.net->body->weight) + 5000] ^= 4;
  write(damaged);
  EXPECT_EQ(error_of_loading(),
            "Checkpoint: cannot load step 2: rank 0: " + path_ +
                " is damaged: model[\"body.weight\"] doesn't have its CRC-32; load an earlier step");
  const auto& state = static_cast<const torch::optim::AdamWParamState&>(
      *trained.optimizer->state().at(trained.net->half.unsafeGetTensorImpl()));
  damaged[place_of(state.exp_avg_sq())] ^= 1;
  write(damaged);
  EXPECT_EQ(error_of_loading(), "Checkpoint: cannot load step 2: rank 0: " + path_ +
                                    " is damaged: model[\"body.weight\"] and 1 more records don't have their CRC-32s; "
                                    "load an earlier step");
  damaged[place_of(trained.net->body->weight) + 5000] ^= 4;
  write(damaged);
  EXPECT_TRUE(says(error_of_loading(), "optimizer[\"state\"][1][\"exp_avg_sq\"] doesn't have its CRC-32"));
}

TEST_F(CheckpointDamage, TruncatedFiles) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, whole_.size() / 2, whole_.size() - 1}) {
    write(whole_.substr(0, size));
    const std::string text = error_of_loading();
    EXPECT_TRUE(
        says(text, "Checkpoint: cannot load step 2: rank 0: " + path_ +
                       " cannot be loaded: it is no whole zip file, so it was truncated, damaged, or written by "
                       "another program"))
        << size << ": " << text;
  }
}

TEST_F(CheckpointDamage, APartThatWasNotWritten) {
  // As if a rank's part had not reached the disk: the second half of the tensors is zeros.
  const Trained trained(1, make_adamw, 2);
  std::string damaged = whole_;
  const std::size_t begin = place_of(trained.net->head->weight);
  std::fill_n(damaged.begin() + static_cast<std::ptrdiff_t>(begin), 4096, '\0');
  write(damaged);
  EXPECT_TRUE(says(error_of_loading(), "model[\"tied\"] doesn't have its CRC-32"));
}

TEST_F(CheckpointDamage, ForeignFiles) {
  write("all work and no play");
  EXPECT_TRUE(says(error_of_loading(), path_ + " cannot be loaded: it is no whole zip file"));
  torch::save(torch::ones({3}), path_);
  EXPECT_TRUE(says(error_of_loading(),
                   path_ + " cannot be loaded: it is a file of PyTorch, but not one that Checkpoint::save() wrote"));
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_TRUE(says(error_of_loading(), path_));
}

/// Wherever a byte is wrong, loading fails, or what was saved is loaded: the byte is one that doesn't matter.
TEST_F(CheckpointDamage, AnyFlippedByteIsNoticedOrHarmless) {
  std::size_t noticed = 0;
  std::size_t count = 0;
  run_ranks(1, [&](const JobGroup& members) {
    Checkpoint checkpoint(folder_.path(), group_of(members));
    const Trained expected(1, make_adamw, 2);
    // The directory and the index, and a sample of the rest.
    const std::size_t dense_from = whole_.size() - 3000;
    for (std::size_t at = 0; at < whole_.size(); at += at < dense_from ? 997 : 7) {
      std::string damaged = whole_;
      damaged[at] = static_cast<char>(~damaged[at]);
      write(damaged);
      Trained loaded(7, make_adamw, 0);
      ++count;
      if (error_of([&] { checkpoint.load_newest(loaded.state()); }) != "no error") {
        ++noticed;
        continue;
      }
      for (const auto& item : expected.net->named_parameters())
        ASSERT_TRUE(has_same_bits(item.value(), loaded.net->named_parameters()[item.key()])) << at;
    }
    EXPECT_GT(noticed, count / 2);
  });
}

/// Indices that no Checkpoint wrote, but whose CRC-32s are right: no crash, and no memory for lengths that aren't
/// there.
TEST_F(CheckpointDamage, AForgedIndexIsRefusedOrRead) {
  const std::size_t end = whole_.find("PK\x01\x02");  // Of the last record; the directory follows.
  const std::size_t begin = whole_.rfind("retinue checkpoint", end) - 8;
  std::size_t refused = 0;
  std::size_t count = 0;
  run_ranks(1, [&](const JobGroup& members) {
    const rlimit limit{test::mapped_bytes() + (std::size_t{1} << 30), RLIM_INFINITY};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    Checkpoint checkpoint(folder_.path(), group_of(members));
    Trained loaded(7, make_adamw, 0);
    for (std::size_t at = begin; at < end - 4; at += 11, ++count) {
      std::string forged = whole_.substr(begin, end - 4 - begin);
      forged[at - begin] = static_cast<char>(at % 2 == 0 ? 0xff : 0);
      const std::uint32_t crc = crc32(forged.data(), forged.size());
      forged.append(reinterpret_cast<const char*>(&crc), 4);
      write(whole_.substr(0, begin) + forged + whole_.substr(end));
      if (error_of([&] { checkpoint.load_newest(loaded.state()); }) != "no error") ++refused;
    }
    EXPECT_GT(refused, count / 10);
    EXPECT_GT(count, 500u);
  });
}

TEST_F(CheckpointDamage, OtherModels) {
  run_ranks(2, [&](const JobGroup& members) {
    Checkpoint checkpoint(folder_.path(), group_of(members));
    torch::nn::Sequential other(torch::nn::Linear(33, 77));
    EXPECT_EQ(error_of([&] { checkpoint.load_newest({.model = other}); }),
              "Checkpoint: cannot load step 2: rank 0: " + path_ +
                  " doesn't fit: model[\"0.weight\"] is missing in it; model[\"0.bias\"] is missing in it; "
                  "model[\"tied\"] is not in the model; model[\"half\"] is not in the model; model[\"transposed\"] is "
                  "not in the model; and 11 more");
    Trained larger(1, make_adamw, 0);
    const torch::NoGradGuard no_grad;
    larger.net->body->weight.set_data(torch::zeros({77, 34}));
    larger.net->half.set_data(torch::zeros({5, 3}));
    EXPECT_EQ(
        error_of([&] { checkpoint.load_newest({.model = larger.net}); }),
        "Checkpoint: cannot load step 2: rank 0: " + path_ +
            " doesn't fit: model[\"half\"] has type BFloat16 and shape [5, 3] in it, but type Float and shape [5, 3] "
            "in the model; model[\"body.weight\"] has type Float and shape [77, 33] in it, but type Float and shape "
            "[77, 34] in the model");
    // Only this rank's model is another one.
    Trained own(1, make_adamw, 0);
    if (members.rank == 1) own.net->body->weight.set_data(torch::zeros({1}));
    const std::string text = error_of([&] { checkpoint.load_newest({.model = own.net}); });
    EXPECT_TRUE(says(text, "rank 1: " + path_ + " doesn't fit: model[\"body.weight\"]")) << text;
  });
}

TEST_F(CheckpointDamage, OtherOptimizers) {
  run_ranks(2, [&](const JobGroup& members) {
    Checkpoint checkpoint(folder_.path(), group_of(members));
    const auto problem = [&](torch::optim::Optimizer& optimizer) {
      return error_of([&] { checkpoint.load_newest({.optimizer = optimizer}); });
    };
    Trained of_sgd(1, make_sgd, 0);
    EXPECT_TRUE(says(problem(*of_sgd.optimizer), path_ + " doesn't fit: it has the state of AdamW, but the optimizer "
                                                         "is of the class SGD"));
    torch::optim::AdamW fewer(of_sgd.net->body->parameters());
    EXPECT_TRUE(says(problem(fewer), path_ + " doesn't fit: optimizer[\"param_groups\"][0] has 9 parameters in it, but "
                                             "2 in the optimizer"));
    auto reversed = test::unique_parameters(*of_sgd.net);
    std::reverse(reversed.begin(), reversed.end());
    torch::optim::AdamW in_other_order(reversed);
    EXPECT_TRUE(says(problem(in_other_order),
                     "optimizer[\"state\"][0][\"exp_avg\"] has shape [33, 77] in it, but the "
                     "parameter has [33]"));
    checkpoint.save(3, {.model = of_sgd.net});
    EXPECT_TRUE(says(problem(*of_sgd.optimizer), "step-000000003.pt doesn't fit: it has no optimizer"));
  });
}

}  // namespace
}  // namespace retinue
