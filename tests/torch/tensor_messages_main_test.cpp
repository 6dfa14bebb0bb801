// Tensors through each kind of queue, and messages that were damaged on their way.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cereal/types/tuple.hpp>
#include <cereal/types/vector.hpp>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "retinue/ipc/pipe.h"
#include "retinue/ipc/queue.h"
#include "retinue/ipc/simple_queue.h"
#include "retinue/launch/spawn.h"
#include "retinue/torch/shared_tensor.h"
#include "retinue/torch/tensor_archive.h"
#include "support/allocated.h"

using at::Tensor;
using retinue::Connection;
using retinue::JobMemory;
using retinue::Pipe;
using retinue::SharedBlock;
using retinue::SimpleQueue;
using retinue::detail::decode_value;
using retinue::detail::encode_value;
using retinue::test::allocated;

namespace {

struct NamedBatch {
  std::string name;
  std::vector<Tensor> tensors;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, tensors);
  }
};

void answer_by_queue(int, SimpleQueue<NamedBatch> from, SimpleQueue<NamedBatch> to) {
  NamedBatch batch = from.get();
  batch.tensors[0].add_(1);
  batch.tensors.push_back(torch::full({1000}, 2.f));
  to.put(batch);
}

TEST(SimpleQueueOfTensors, SendsThemAsTheSameMemory) {
  const std::size_t before = allocated();
  {
    const Tensor tensor = torch::zeros({100});
    auto there = SimpleQueue<NamedBatch>::create();
    auto back = SimpleQueue<NamedBatch>::create();
    auto context = retinue::spawn<answer_by_queue>({.join = false}, there, back);
    there.put({"a batch", {tensor, tensor[3]}});
    const NamedBatch answer = back.get();
    context.join();
    EXPECT_EQ(answer.name, "a batch");
    ASSERT_EQ(answer.tensors.size(), 3u);
    EXPECT_EQ(answer.tensors[0].data_ptr(), tensor.data_ptr());
    EXPECT_TRUE(answer.tensors[1].is_alias_of(tensor));
    EXPECT_EQ(tensor.sum().item<float>(), 100);
    EXPECT_EQ(answer.tensors[2].sum().item<float>(), 2000) << "its maker has ended";
  }
  EXPECT_EQ(allocated(), before);
}

void answer_by_pipe(int, Connection<NamedBatch> end) {
  NamedBatch batch = end.recv();
  batch.tensors[0].add_(1);
  end.send(batch);
}

TEST(PipeOfTensors, SendsThemAsTheSameMemory) {
  const std::size_t before = allocated();
  {
    const Tensor tensor = torch::zeros({100});
    auto [own, theirs] = Pipe<NamedBatch>::create();
    auto context = retinue::spawn<answer_by_pipe>({.join = false}, theirs);
    theirs.close();
    own.send({"one", std::vector<Tensor>(20, tensor)});  // More than a slot refers to.
    const NamedBatch answer = own.recv();
    ASSERT_EQ(answer.tensors.size(), 20u);
    for (const Tensor& each : answer.tensors) EXPECT_EQ(each.data_ptr(), tensor.data_ptr());
    EXPECT_EQ(tensor.sum().item<float>(), 100);
    context.join();
    EXPECT_THROW(own.recv(), retinue::Closed);
  }
  EXPECT_EQ(allocated(), before);
}

/// Whether all that the tensor is made of lies in one block, or has no memory.
bool is_inside(const Tensor& tensor) {
  const auto found = JobMemory::current()->find(tensor.storage().data());
  if (tensor.storage().nbytes() == 0) return true;
  const std::size_t reach = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                                             static_cast<std::size_t>(tensor.storage_offset()));
  return found && tensor.storage().nbytes() <= found->bytes && reach <= tensor.storage().nbytes();
}

TEST(TensorMessage, ADamagedOneReachesNothingButItsMemory) {
  const Tensor base = torch::arange(24, torch::kFloat).reshape({4, 6});
  const std::vector<Tensor> tensors = {
      base.t(),
      base.slice(0, 1, 3).requires_grad_(true),
      at::imag(torch::complex(base, base).conj()),
      base.to_sparse(),
      base.to_sparse_csr(),
      at::quantize_per_tensor(base, 0.5, 3, torch::kQUInt8),
      at::quantize_per_channel(base, torch::rand(4) + 0.1, torch::zeros(4, torch::kLong), 0, torch::kQInt8)};
  std::mt19937 random(7);
  int refused = 0;
  int accepted = 0;
  for (const Tensor& tensor : tensors) {
    const auto encoded = encode_value(tensor);
    for (int round = 0; round < 3000; ++round) {
      std::string bytes = encoded.bytes;
      for (unsigned left = 1 + random() % 3; left > 0; --left) {
        const std::size_t at = random() % bytes.size();
        bytes[at] = random() % 2 == 0 ? static_cast<char>(random()) : static_cast<char>(bytes[at] ^ 1 << random() % 8);
      }
      if (random() % 8 == 0) bytes.resize(random() % bytes.size());
      Tensor read;
      try {
        decode_value(bytes, read);
      } catch (const retinue::Error&) {
        ++refused;
        continue;
      } catch (const cereal::Exception&) {  // It ends too early.
        ++refused;
        continue;
      }
      ++accepted;
      if (read.defined() && read.layout() == at::kStrided) {
        EXPECT_TRUE(is_inside(read));
      }
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 300);
}

/// What a message begins with: its form, four flags, its type.
constexpr std::size_t kHeadBytes = 6;

std::string head_of(std::uint8_t form, at::ScalarType type) {
  return {static_cast<char>(form), 0, 0, 0, 0, static_cast<char>(type)};
}
template <class T>
std::string bytes_of(const T& value) {
  return encode_value(value).bytes;
}
testing::AssertionResult is_refused(const std::string& bytes, const std::string& reason) {
  try {
    Tensor read;
    decode_value(bytes, read);
  } catch (const retinue::UsageError& error) {
    if (std::string(error.what()).find(reason) != std::string::npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "refused, but: " << error.what();
  }
  return testing::AssertionFailure() << "not refused";
}

TEST(TensorMessage, OneThatNestsWithoutEndIsRefused) {
  Tensor tensor = torch::empty({0}).requires_grad_(true);
  const std::string inner = bytes_of(tensor);
  tensor.mutable_grad() = torch::empty({0});
  const std::string with_grad = bytes_of(tensor);
  const std::string outer = with_grad.substr(0, with_grad.size() - bytes_of(torch::empty({0})).size());
  std::string bytes;
  for (int depth = 0; depth < 1'000'000; ++depth) bytes += outer;
  EXPECT_TRUE(is_refused(bytes + inner, "a part of it has a grad"));
}

TEST(TensorMessage, ChannelsWhoseScalesAreOneNumberAreRefused) {
  const std::int64_t many = std::int64_t{1} << 40;
  const Tensor scales = torch::ones(1, torch::kDouble).expand(many);
  const Tensor zero_points = torch::zeros(1, torch::kLong).expand(many);
  const Tensor numbers = torch::zeros(1, torch::kByte).expand(many);
  const std::string bytes = head_of(3, torch::kQUInt8) + bytes_of(std::int64_t{0}) + bytes_of(scales) +
                            bytes_of(zero_points) + bytes_of(numbers).substr(kHeadBytes);
  EXPECT_TRUE(is_refused(bytes, "its channels have no scales"));
}

/// With each part in turn replaced by one of another shape or type.
TEST(TensorMessage, PartsThatMakeNoSparseTensorAreRefused) {
  const Tensor base = torch::arange(24, torch::kFloat).reshape({4, 6});
  const std::vector<Tensor> sparse = {base.to_sparse_csr(), base.to_sparse_csc(), base.to_sparse_bsr({4, 6}),
                                      base.to_sparse_bsc({2, 6}), torch::stack({base, base}).to_sparse_csr()};
  for (const Tensor& tensor : sparse) {
    const bool by_rows = tensor.layout() == at::kSparseCsr || tensor.layout() == at::kSparseBsr;
    const std::vector<Tensor> parts = {by_rows ? tensor.crow_indices() : tensor.ccol_indices(),
                                       by_rows ? tensor.col_indices() : tensor.row_indices(), tensor.values()};
    const std::string whole = bytes_of(tensor);
    std::size_t at = whole.size();
    for (const Tensor& part : parts) at -= bytes_of(part).size();
    const std::string before = whole.substr(0, at);
    const auto with = [&](const std::vector<Tensor>& others) {
      std::string bytes = before;
      for (const Tensor& other : others) bytes += bytes_of(other);
      return bytes;
    };
    EXPECT_EQ(with(parts), whole) << tensor.layout();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      std::vector<Tensor> wrong = {parts[i].narrow(-1, 0, parts[i].size(-1) - 1), parts[i].unsqueeze(0),
                                   parts[i].flatten()[0]};
      if (i < 2) wrong.push_back(parts[i].to(torch::kInt));
      for (const Tensor& other : wrong) {
        std::vector<Tensor> others = parts;
        others[i] = other;
        EXPECT_TRUE(is_refused(with(others), "its parts don't form a sparse tensor"))
            << tensor.layout() << ", part " << i << " as " << other.sizes();
      }
    }
  }
}

TEST(TensorMessage, IndicesAreCheckedWhereTorchIsToldTo) {
  const Tensor wrong = at::_sparse_coo_tensor_unsafe(torch::full({1, 1}, 7, torch::kLong), torch::ones(1), {3});
  const std::string bytes = bytes_of(wrong);
  EXPECT_FALSE(is_refused(bytes, ""));
  at::globalContext().setCheckSparseTensorInvariants(true);
  EXPECT_TRUE(is_refused(bytes, "size"));
  at::globalContext().setCheckSparseTensorInvariants(false);
}

}  // namespace
