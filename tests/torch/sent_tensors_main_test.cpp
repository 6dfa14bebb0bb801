// Tensors and modules as arguments, return values and messages.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cereal/types/map.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/tuple.hpp>
#include <cereal/types/vector.hpp>
#include <csignal>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "retinue/ipc/queue.h"
#include "retinue/launch/pool.h"
#include "retinue/launch/spawn.h"
#include "retinue/torch/shared_tensor.h"
#include "retinue/torch/state_dict.h"
#include "retinue/torch/tensor_archive.h"
#include "support/allocated.h"
#include "support/start_methods.h"
#include "support/usage_error.h"

using at::Tensor;
using retinue::is_shared;
using retinue::Queue;
using retinue::StateDict;
using retinue::test::allocated;
using retinue::test::EachStartMethod;
using retinue::test::usage_error_of;

namespace {

/// Sent through a queue and taken out by the same process, as another one would.
template <class T>
T sent(const T& value) {
  Queue<T> queue({.capacity = 1});
  queue.put(value);
  return queue.get();
}

/// Bit for bit, with all that a tensor is.
void expect_same(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.defined(), b.defined());
  if (!a.defined()) return;
  EXPECT_EQ(a.sizes(), b.sizes());
  EXPECT_EQ(a.scalar_type(), b.scalar_type());
  EXPECT_EQ(a.layout(), b.layout());
  EXPECT_EQ(a.requires_grad(), b.requires_grad());
  EXPECT_EQ(a.is_conj(), b.is_conj());
  EXPECT_EQ(a.is_neg(), b.is_neg());
  if (a.layout() == at::kStrided) {
    EXPECT_EQ(a.strides(), b.strides());
    EXPECT_EQ(a.storage_offset(), b.storage_offset());
  }
  const auto plain = [](const Tensor& t) {
    return (t.is_quantized() ? t.dequantize() : t.layout() != at::kStrided ? t.to_dense() : t).detach();
  };
  EXPECT_TRUE(at::equal(plain(a), plain(b)));
  if (a.is_leaf()) expect_same(a.grad(), b.grad());
}

Tensor with_grad() {
  Tensor leaf = torch::arange(6, torch::kFloat).requires_grad_(true);
  (leaf * leaf).sum().backward();
  return leaf;
}

TEST(SentTensor, ArrivesAsItWas) {
  const Tensor base = torch::arange(24, torch::kFloat).reshape({4, 6});
  const Tensor complex = torch::complex(base, base + 1);
  const std::map<std::string, Tensor> tensors = {
      {"plain", base},
      {"transposed", base.t()},
      {"slice", base.slice(0, 1, 3).slice(1, 0, 6, 2)},
      {"expanded", base[0].expand({5, 6})},
      {"scalar", torch::tensor(3.5)},
      {"empty", torch::empty({0, 3})},
      {"undefined", Tensor()},
      {"double", base.to(torch::kDouble)},
      {"half", base.to(torch::kHalf)},
      {"bfloat16", base.to(torch::kBFloat16)},
      {"bool", base > 3},
      {"int8", base.to(torch::kChar)},
      {"conjugate", complex.conj()},
      {"negative", at::imag(complex.conj())},
      {"leaf", torch::ones({3}).requires_grad_(true)},
      {"leaf with grad", with_grad()},
      {"coo", base.to_sparse()},
      {"csr", base.to_sparse_csr()},
      {"csc", base.to_sparse_csc()},
      {"quantised", at::quantize_per_tensor(base, 0.5, 3, torch::kQUInt8)},
      {"quantised by channel",
       at::quantize_per_channel(base, torch::rand(4) + 0.1, torch::zeros(4, torch::kLong), 0, torch::kQInt8)},
  };
  for (const auto& [name, tensor] : tensors) {
    SCOPED_TRACE(name);
    expect_same(sent(tensor), tensor);
  }
  const auto all = sent(tensors);
  ASSERT_EQ(all.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    SCOPED_TRACE(name);
    expect_same(all.at(name), tensor);
  }
}

TEST(SentTensor, IsRefusedWithTheReason) {
  const Tensor leaf = torch::ones({2}).requires_grad_(true);
  EXPECT_NE(usage_error_of([&] { sent(leaf * 2); }).find("detach"), std::string::npos);
  EXPECT_NE(usage_error_of([&] { sent(torch::empty({2}, torch::kMeta)); }).find("meta"), std::string::npos);
  expect_same(sent((leaf * 2).detach()), torch::full({2}, 2.f));
  const auto of_dimensions = [](std::size_t count) { return torch::zeros(std::vector<std::int64_t>(count, 1)); };
  EXPECT_NE(usage_error_of([&] { sent(of_dimensions(256)); }).find("256 dimensions"), std::string::npos);
  expect_same(sent(of_dimensions(255)), of_dimensions(255));
}

TEST(SentTensor, MovesToJobMemoryOnceAndIsTheSameStorageEverywhere) {
  const Tensor base = torch::zeros({1000});
  const Tensor view = base.slice(0, 10, 20);
  const auto [first, second] = sent(std::tuple<Tensor, Tensor>(base, view));
  EXPECT_TRUE(is_shared(base));
  EXPECT_TRUE(is_shared(view));
  const void* const place = base.data_ptr();
  EXPECT_EQ(first.data_ptr(), place) << "this process's own storage came back";
  EXPECT_TRUE(first.is_alias_of(second));
  EXPECT_EQ(first.storage().unsafeGetStorageImpl(), base.storage().unsafeGetStorageImpl());
  const std::size_t before = allocated();
  const Tensor again = sent(base);
  EXPECT_EQ(again.data_ptr(), place);
  EXPECT_EQ(allocated(), before);
  again[15].fill_(4);
  EXPECT_EQ(view[5].item<float>(), 4);
}

TEST(SentTensor, ItsMemoryComesBack) {
  const std::size_t before = allocated();
  for (int i = 0; i < 3; ++i) {
    Queue<std::vector<Tensor>> queue({.capacity = 64});
    for (int k = 0; k < 40; ++k) queue.put({torch::ones({1000}), torch::ones({5}), with_grad()});
    EXPECT_GT(allocated(), before);
    for (int k = 0; k < 20; ++k) EXPECT_EQ(queue.get()[0].sum().item<float>(), 1000);
  }
  EXPECT_EQ(allocated(), before);
}

void add_rank(int rank, const Tensor& tensor, const Queue<Tensor>& out) {
  Tensor own = tensor[rank];
  own.add_(rank + 1);
  Queue<Tensor>(out).put(own);
}

TEST_P(EachStartMethod, TensorsAndQueuesAreArguments) {
  const std::size_t before = allocated();
  {
    const Tensor tensor = torch::zeros({3, 100});
    Queue<Tensor> queue({.capacity = 4});
    retinue::spawn<add_rank>({.nprocs = 3, .start_method = GetParam()}, tensor, queue);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(tensor[rank].sum().item<float>(), 100 * (rank + 1));
      EXPECT_TRUE(queue.get().is_alias_of(tensor));
    }
  }
  EXPECT_EQ(allocated(), before);
}

StateDict trained(int rank, const StateDict& dict) {
  StateDict out;
  for (const auto& entry : dict) out.insert(entry.key(), entry.value() + rank);
  return out;
}

TEST_P(EachStartMethod, StateDictsAreReturned) {
  torch::nn::Linear linear(3, 2);
  const StateDict dict = retinue::state_dict(*linear);
  auto result = retinue::spawn<trained>({.nprocs = 2, .start_method = GetParam(), .join = false}, dict).wait();
  const auto values = result.values<StateDict>();
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(values.at(1).keys(), dict.keys());
  EXPECT_TRUE(at::allclose(values.at(1)["weight"], linear->weight + 1));
  retinue::load_state_dict(*linear, values.at(1));
  EXPECT_TRUE(at::equal(linear->weight, values.at(1)["weight"]));
}

struct NetImpl : torch::nn::Module {
  NetImpl() : first(register_module("first", torch::nn::Linear(4, 3))) {
    seen = register_buffer("seen", torch::zeros({1}, torch::kLong));
    register_module("norm", torch::nn::BatchNorm1d(3))->eval();
  }
  torch::nn::Linear first;
  Tensor seen;
};
TORCH_MODULE(Net);

void train_in_place(int rank, const Net& net, const std::shared_ptr<NetImpl>& same) {
  const torch::NoGradGuard no_grad;
  Net own = net;
  own->first->weight[0].add_(1);
  own->seen.add_(rank + 1);
  if (!same->first->weight.is_alias_of(own->first->weight)) throw std::runtime_error("two models instead of one");
  if (!own->is_training() || own->named_modules()["norm"]->is_training()) throw std::runtime_error("training mode");
  if (!own->first->weight.requires_grad()) throw std::runtime_error("requires_grad");
}

TEST_P(EachStartMethod, ModulesAreOneModel) {
  Net net;
  retinue::share_memory_(*net);
  EXPECT_TRUE(is_shared(*net));
  const Tensor before = net->first->weight.detach().clone();
  retinue::spawn<train_in_place>({.start_method = GetParam()}, net, net.ptr());
  EXPECT_TRUE(at::equal(net->first->weight[0], before[0] + 1));
  EXPECT_EQ(net->seen.item<int>(), 1);
}

void die_with_tensors(int, const Tensor& tensor, const Queue<Tensor>& queue) {
  const Tensor more = retinue::shared_zeros({1 << 20});
  Queue<Tensor>(queue).put(torch::full({3}, 7.f));
  std::vector<Tensor> views(10, tensor[0]);
  raise(SIGKILL);
}

TEST_P(EachStartMethod, AKilledRanksTensorsComeBack) {
  const Tensor tensor = retinue::shared_zeros({10, 10});
  Queue<Tensor> queue({.capacity = 4});
  const std::size_t before = allocated();
  EXPECT_THROW(retinue::spawn<die_with_tensors>({.start_method = GetParam()}, tensor, queue),
               retinue::ProcessExitedException);
  EXPECT_EQ(queue.get().sum().item<float>(), 21) << "sent before its death";
  EXPECT_EQ(allocated(), before);
}

Tensor add_one_in_place(const Tensor& given) {
  const torch::NoGradGuard no_grad;
  given.add_(1);
  return given;
}
Tensor make_ones(int count) {
  return torch::ones({count});
}

TEST_P(EachStartMethod, APoolTakesAndGivesTensorsAsTheSameMemory) {
  const Tensor shared = retinue::shared_zeros({1000});
  retinue::Pool pool({.processes = 2, .start_method = GetParam()});
  EXPECT_TRUE(pool.apply<add_one_in_place>(shared).is_alias_of(shared));
  EXPECT_EQ(shared.sum().item<float>(), 1000);
  const std::vector<Tensor> made = pool.map<make_ones>({3, 5});
  EXPECT_TRUE(is_shared(made[0]));
  EXPECT_EQ(made[0].sum().item<float>(), 3);
  pool.apply<add_one_in_place>(made[1]);
  EXPECT_EQ(made[1].sum().item<float>(), 10);
}

INSTANTIATE_TEST_SUITE_P(Sent, EachStartMethod, retinue::test::all_start_methods(), retinue::test::start_method_name);

TEST(StateDict, IsLoadedStrictly) {
  Net net;
  StateDict dict = retinue::state_dict(*net);
  EXPECT_EQ(dict.keys(),
            (std::vector<std::string>{"first.weight", "first.bias", "norm.weight", "norm.bias", "seen",
                                      "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}));
  EXPECT_TRUE(dict["first.weight"].is_alias_of(net->first->weight));
  StateDict wrong;
  wrong.insert("first.weight", torch::zeros({1}));
  wrong.insert("second", torch::zeros({1}));
  const std::string problem = usage_error_of([&] { retinue::load_state_dict(*net, wrong); });
  for (const char* part :
       {"'first.weight' has the shape [1]", "'first.bias' is missing", "'second' is not in the module"})
    EXPECT_NE(problem.find(part), std::string::npos) << problem;
}

TEST(StateDict, ArrivesThroughAQueueInItsOrder) {
  Net net;
  const StateDict dict = retinue::state_dict(*net);
  const auto [received, number] = sent(std::tuple<StateDict, int>(dict, 7));
  EXPECT_EQ(received.keys(), dict.keys());
  EXPECT_EQ(number, 7);
  Net other;
  other->first->weight.detach().zero_();
  retinue::load_state_dict(*other, received);
  EXPECT_TRUE(at::equal(other->first->weight, net->first->weight));
  EXPECT_FALSE(other->first->weight.is_alias_of(net->first->weight)) << "loading copies";
}

TEST(SentModule, ArrivesWholeThroughAQueue) {
  Net net;
  net->first->bias.set_requires_grad(false);
  net->first->forward(torch::ones({2, 4})).sum().backward();
  net->seen.fill_(5);
  const Net received = sent(net);
  EXPECT_NE(received.ptr(), net.ptr());
  const StateDict dict = retinue::state_dict(*net);
  const StateDict same = retinue::state_dict(*received);
  ASSERT_EQ(same.keys(), dict.keys());
  for (const auto& entry : dict) EXPECT_TRUE(same[entry.key()].is_alias_of(entry.value())) << entry.key();
  EXPECT_TRUE(received->first->weight.requires_grad());
  EXPECT_FALSE(received->first->bias.requires_grad());
  EXPECT_TRUE(received->first->weight.grad().is_alias_of(net->first->weight.grad()));
  EXPECT_FALSE(received->named_modules()["norm"]->is_training());
  EXPECT_TRUE(sent(Net(nullptr)).is_empty());
}

TEST(ShareMemory, MovesOptimizersState) {
  Net net;
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.1));
  net->first->forward(torch::ones({2, 4})).sum().backward();
  optimizer.step();
  retinue::share_memory_(*net);
  retinue::share_memory_(optimizer);
  EXPECT_TRUE(is_shared(net->first->weight.grad()));
  const auto& state =
      static_cast<torch::optim::AdamParamState&>(*optimizer.state().at(net->first->weight.unsafeGetTensorImpl()));
  EXPECT_TRUE(is_shared(state.exp_avg()));
  EXPECT_TRUE(is_shared(state.exp_avg_sq()));
  torch::optim::LBFGS other(net->parameters(), torch::optim::LBFGSOptions(0.1));
  other.step([&] {
    other.zero_grad();
    Tensor loss = net->first->forward(torch::ones({2, 4})).square().sum();
    loss.backward();
    return loss;
  });
  EXPECT_NE(usage_error_of([&] { retinue::share_memory_(other); }).find("Adam"), std::string::npos);
}

}  // namespace
