#include "torch/gloo_connection.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace retinue {

c10::intrusive_ptr<c10d::Backend> connect_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               std::chrono::milliseconds timeout, const std::string& address) {
  using Gloo = c10d::ProcessGroupGloo;
  c10::intrusive_ptr<Gloo::Options> options;
  if (address.empty()) {
    options = Gloo::Options::create_default(timeout);
  } else {
    options = Gloo::Options::create(timeout);
    options->devices.push_back(Gloo::createDeviceForHostname(address));
  }
  return c10::make_intrusive<Gloo>(store, rank, size, std::move(options));
}

}  // namespace retinue
