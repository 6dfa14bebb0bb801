// What retinue/_c10d.py calls, as operators and classes of LibTorch: it finds them by name, so the library needs no
// header or symbol of one version of CPython.
#include <torch/custom_class.h>
#include <torch/library.h>

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "python/backend/caller_site.h"
#include "python/backend/interrupts.h"
#include "retinue/os/detail/interrupt.h"
#include "retinue/torch/c10d_store.h"
#include "retinue/torch/detail/c10d_caller.h"
#include "retinue/torch/process_group.h"
#include "torch/backend/tensor_backend.h"
#include "torch/groups/freed_memory.h"
#include "torch/groups/make_group.h"

namespace retinue::python {
namespace {

/// Makes the group of the ranks that meet at the store of `place`, a group of c10d without a backend.
ProcessGroup new_group(const ProcessGroup& place, const std::string& name, std::int64_t timeout_ms) {
  ProcessGroupOptions options;
  options.store = std::make_shared<C10dStore>(place->getStore());
  options.rank = place->getRank();
  options.world_size = place->getSize();
  options.group_name = name;
  options.timeout = std::chrono::milliseconds(timeout_ms);
  keep_freed_memory();
  ProcessGroup group = init_at(std::move(options), detail::c10d_call_site("init_process_group"));
  TensorBackend::of(*group)->set_name("retinue");
  return group;
}

TORCH_LIBRARY(retinue, library) {
  library.def("new_group", &new_group);
  library.def("set_library_folders", &set_library_folders);
  detail::c10d_caller.store(&caller_site, std::memory_order_release);
  detail::interrupt_check.store(&is_interrupted_by_handler, std::memory_order_release);
}

}  // namespace
}  // namespace retinue::python
