#include "torch/gloo/gloo_connection.h"

#include <algorithm>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace retinue {

c10::intrusive_ptr<c10d::Backend> connect_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               std::chrono::milliseconds timeout, const std::string& address) {
  using Gloo = c10d::ProcessGroupGloo;
  // gloo tries to connect so many times, each for as long as its timeout.
  constexpr int kTries = 5;
  auto options = Gloo::Options::create(std::max(timeout / kTries, std::chrono::milliseconds(1)));
  options->devices.push_back(Gloo::createDeviceForHostname(address));
  auto gloo = c10::make_intrusive<Gloo>(store, rank, size, std::move(options));
  gloo->setTimeout(timeout);
  return gloo;
}

}  // namespace retinue
