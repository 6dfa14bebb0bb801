#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace retinue {

/// LibTorch's own gloo: c10d's ProcessGroupGloo, whose ranks are connected with each other by TCP.
///
/// `address`: of this host, numeric, as the other ranks reach it.
/// `store`: of this group alone. Blocking: until all ranks are connected, at most `timeout`. Errors:
/// gloo's.
c10::intrusive_ptr<c10d::Backend> connect_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               std::chrono::milliseconds timeout, const std::string& address);

}  // namespace retinue
