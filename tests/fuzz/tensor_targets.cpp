// Tensors out of messages.
#include <ATen/EmptyTensor.h>
#include <ATen/SparseCsrTensorUtils.h>

#include "fuzz/harness.h"
#include "retinue/torch/tensor_archive.h"

namespace retinue::fuzz {
namespace {

/// That all a dense tensor names lies in one block of job memory.
void check_dense(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  const std::size_t reach = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                                             static_cast<std::size_t>(tensor.storage_offset()));
  require(reach <= storage.nbytes(), "a tensor that reaches outside of its storage");
  if (storage.nbytes() == 0) return;
  const auto block = Job::instance().memory()->find(storage.data());
  require(block && storage.nbytes() <= block->bytes, "a storage that reaches outside of its block");
}

void check(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  if (tensor.is_sparse()) {
    check_dense(tensor._indices());
    check_dense(tensor._values());
  } else if (at::sparse_csr::is_sparse_compressed(tensor)) {
    const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(tensor);
    check_dense(compressed);
    check_dense(plain);
    check_dense(tensor.values().detach());
  } else {
    check_dense(tensor);
  }
}

}  // namespace

void tensor(Bytes bytes) {
  const std::string text = Job::instance().with_handles(bytes);
  without_leaks([&] {
    attempt([&] {
      at::Tensor read;
      detail::decode_value(text, read);
      check(read);
      if (read.defined() && read.grad().defined()) check(read.grad());
    });
  });
}

}  // namespace retinue::fuzz
