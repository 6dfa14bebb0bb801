#include "retinue/collective/dlpack.h"

#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

#include "collective/dlpack_structs.h"
#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "support/ranks.h"
#include "support/usage_error.h"

namespace retinue::test {
namespace {

/// A tensor of three rows of four that somebody else made, in this test's memory.
template <class Managed>
struct Foreign {
  Foreign() {
    std::iota(values.begin(), values.end(), 0.0f);
    if constexpr (detail::VersionedDlpack<Managed>) managed.version = {1, 3};
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) { ++static_cast<Foreign*>(self->manager_ctx)->deletions; };
    managed.dl_tensor = {.data = values.data(),
                         .device = {kDLCPU, 0},
                         .ndim = 2,
                         .dtype = {2, 32, 1},
                         .shape = shape,
                         .strides = strides,
                         .byte_offset = 0};
  }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;

  std::vector<float> values = std::vector<float>(12);
  std::int64_t shape[2] = {3, 4};
  std::int64_t strides[2] = {4, 1};
  Managed managed{};
  int deletions = 0;
};

template <class Managed>
class Dlpack : public testing::Test {};
using Kinds = testing::Types<DLManagedTensor, DLManagedTensorVersioned>;
TYPED_TEST_SUITE(Dlpack, Kinds, );

TYPED_TEST(Dlpack, TensorOfOthersTakesPartInCollectives) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    Foreign<TypeParam> foreign;
    {
      DlpackArray array = from_dlpack(&foreign.managed);
      {
        const DlpackArray first = std::exchange(array, DlpackArray(array));
        EXPECT_EQ(first.input(), array.input());
      }
      EXPECT_EQ(array.count(), 12u);
      EXPECT_EQ(array.bytes(), 48u);
      EXPECT_EQ(array.dtype(), Dtype::kFloat32);
      EXPECT_EQ(array.shape(), (std::vector<std::int64_t>{3, 4}));
      EXPECT_EQ(array.input(), foreign.values.data());
      communicator.all_reduce(array.output(), array.count(), array.dtype(), ReduceOp::kSum);
      EXPECT_EQ(array.template inputs<float>()[11], 22.0f);
      communicator.all_reduce(array.template outputs<float>());
      EXPECT_EQ(foreign.values[11], 44.0f);
      EXPECT_THROW(array.template inputs<std::int32_t>(), UsageError);
      EXPECT_EQ(foreign.deletions, 0);
    }
    EXPECT_EQ(foreign.deletions, 1);
  });
}

TYPED_TEST(Dlpack, TensorOfOthersIsRefusedWhereItIsNoPlainArray) {
  const auto expect_refusal = [](auto change, const std::string& text) {
    Foreign<TypeParam> foreign;
    change(foreign);
    EXPECT_NE(usage_error_of([&] { from_dlpack(&foreign.managed); }).find(text), std::string::npos) << text;
    EXPECT_EQ(foreign.deletions, 1) << "it was taken over all the same";
  };
  expect_refusal([](auto& f) { f.managed.dl_tensor.device.device_type = kDLCUDA; }, "device");
  expect_refusal([](auto& f) { f.managed.dl_tensor.dtype.lanes = 4; }, "4 lanes");
  expect_refusal([](auto& f) { f.managed.dl_tensor.dtype = {2, 8, 1}; }, "code 2 with 8 bits");
  expect_refusal([](auto& f) { f.managed.dl_tensor.dtype = {3, 64, 1}; }, "code 3 with 64 bits");
  expect_refusal([](auto& f) { std::swap(f.strides[0], f.strides[1]); }, "strides [1, 4] is not contiguous");
  expect_refusal([](auto& f) { f.shape[0] = -3; }, "[-3, 4]");
  expect_refusal([](auto& f) { f.shape[0] = f.shape[1] = std::int64_t{1} << 40; }, "is negative or too large");
  expect_refusal([](auto& f) { f.managed.dl_tensor.ndim = -1; }, "-1 dimensions");
  expect_refusal([](auto& f) { f.managed.dl_tensor.shape = nullptr; }, "has no shape");
  expect_refusal([](auto& f) { f.managed.dl_tensor.data = nullptr; }, "no data");
  EXPECT_THROW(from_dlpack(static_cast<TypeParam*>(nullptr)), UsageError);
}

TYPED_TEST(Dlpack, TensorOfOthersIsTakenHoweverItIsSaid) {
  const auto count_with = [](auto change) {
    Foreign<TypeParam> foreign;
    change(foreign);
    return from_dlpack(&foreign.managed).count();
  };
  EXPECT_EQ(count_with([](auto& f) { f.managed.dl_tensor.strides = nullptr; }), 12u);
  EXPECT_EQ(count_with([](auto& f) { f.managed.dl_tensor.ndim = 0; }), 1u);
  EXPECT_EQ(count_with([](auto& f) { f.shape[0] = 1, f.strides[0] = 77; }), 4u);
  EXPECT_EQ(count_with([](auto& f) { f.shape[1] = 0, f.managed.dl_tensor.data = nullptr; }), 0u);
  EXPECT_EQ(count_with([](auto& f) { f.managed.deleter = nullptr; }), 12u);
  Foreign<TypeParam> foreign;
  foreign.managed.dl_tensor.byte_offset = 16;
  foreign.shape[0] = 2;
  EXPECT_EQ(from_dlpack(&foreign.managed).template inputs<float>()[0], 4.0f);
  foreign.managed.dl_tensor.byte_offset = 1;
  const DlpackArray unaligned = from_dlpack(&foreign.managed);
  EXPECT_THROW(unaligned.inputs<float>(), UsageError);
  EXPECT_EQ(unaligned.input(), reinterpret_cast<std::byte*>(foreign.values.data()) + 1);
}

TEST(DlpackVersions, AreKept) {
  Foreign<DLManagedTensorVersioned> foreign;
  foreign.managed.flags = 1;
  const DlpackArray array = from_dlpack(&foreign.managed);
  EXPECT_TRUE(array.is_read_only());
  EXPECT_EQ(array.inputs<float>()[3], 3.0f);
  EXPECT_THROW(array.output(), UsageError);
  EXPECT_THROW(array.outputs<float>(), UsageError);
  Foreign<DLManagedTensorVersioned> newer;
  newer.managed.version = {2, 0};
  newer.managed.dl_tensor.device.device_type = kDLCUDA;
  EXPECT_NE(usage_error_of([&] { from_dlpack(&newer.managed); }).find("DLPack version 2"), std::string::npos);
  EXPECT_EQ(newer.deletions, 1);
}

TYPED_TEST(Dlpack, JobMemoryIsHeldUntilTheDeleterIsCalled) {
  run_ranks(1, [](const JobGroup& group) {
    const std::size_t before = group.memory->allocated_bytes();
    SharedBlock block = SharedBlock::allocate(group.memory, 4096);
    auto* numbers = reinterpret_cast<double*>(block.data());
    std::iota(numbers, numbers + 512, 0.0);
    TypeParam* given = to_dlpack<TypeParam>(block, {.dtype = Dtype::kFloat64, .shape = {4, 1, 100}, .byte_offset = 80});
    block = SharedBlock();
    EXPECT_EQ(given->dl_tensor.ndim, 3);
    EXPECT_EQ(given->dl_tensor.device.device_type, kDLCPU);
    EXPECT_EQ(given->dl_tensor.strides[0], 100);
    DlpackArray taken = from_dlpack(given);
    EXPECT_EQ(taken.dtype(), Dtype::kFloat64);
    EXPECT_TRUE(group.memory->contains(taken.input(), taken.bytes()));
    EXPECT_EQ(taken.inputs<double>()[399], 409.0);
    EXPECT_GE(group.memory->allocated_bytes(), before + 4096);
    const DlpackArray last = std::exchange(taken, from_dlpack(to_dlpack<TypeParam>(SharedBlock(), {.shape = {0}})));
    EXPECT_EQ(taken.count(), 0u);
    EXPECT_EQ(last.inputs<double>()[0], 10.0);
  });
}

TYPED_TEST(Dlpack, JobMemoryIsGivenOnlyWhereItIs) {
  run_ranks(1, [](const JobGroup& group) {
    const SharedBlock block = SharedBlock::allocate(group.memory, 4096);
    const auto give = [&](const ArrayLayout& layout) {
      TypeParam* const given = to_dlpack<TypeParam>(block, layout);
      given->deleter(given);
    };
    give({.shape = {1024}});
    give({.shape = {3, 10}, .strides = {0, 113}});
    give({.shape = {}, .byte_offset = 4092});
    EXPECT_THROW(give({.shape = {1025}}), UsageError);
    EXPECT_THROW(give({.shape = {}, .byte_offset = 4093}), UsageError);
    EXPECT_THROW(give({.shape = {1, 10}, .strides = {0, 114}}), UsageError);
    EXPECT_THROW(give({.shape = {2}, .strides = {-1}, .byte_offset = 4}), UsageError);
    EXPECT_THROW(give({.shape = {2, 2}, .strides = {1}}), UsageError);
    EXPECT_THROW(give({.shape = {-1}}), UsageError);
    EXPECT_THROW(give({.shape = {3}, .strides = {std::int64_t{1} << 62}}), UsageError);
    EXPECT_THROW(give({.shape = {0}, .byte_offset = 5000}), UsageError);
  });
}

TYPED_TEST(Dlpack, EachTypeComesBackAsItself) {
  run_ranks(1, [](const JobGroup& group) {
    const SharedBlock block = SharedBlock::allocate(group.memory, 4096);
    for (int type = 0; type <= static_cast<int>(Dtype::kComplex128); ++type) {
      const auto dtype = static_cast<Dtype>(type);
      const DlpackArray array = from_dlpack(to_dlpack<TypeParam>(block, {.dtype = dtype, .shape = {7}}));
      EXPECT_EQ(array.dtype(), dtype);
      EXPECT_EQ(array.bytes(), 7 * size_of(dtype));
    }
  });
}

}  // namespace
}  // namespace retinue::test
