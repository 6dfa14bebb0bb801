#include "os/process/spare_descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>

#include "os/process/process_calls.h"

namespace retinue {

DescriptorHeadroom::DescriptorHeadroom(std::size_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max > count ? limit.rlim_max - count : limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

DescriptorHeadroom::~DescriptorHeadroom() {
  raise_descriptor_limit();
}

SpareDescriptors::SpareDescriptors(std::size_t count) : held_(count) {
  take();
}

void SpareDescriptors::take() {
  for (FileDescriptor& fd : held_)
    if (!fd) fd.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void SpareDescriptors::lend(const std::function<void()>& work) {
  const std::lock_guard lock(mutex_);
  for (FileDescriptor& fd : held_) fd.reset();
  struct TakeBack {
    SpareDescriptors& spare;
    ~TakeBack() { spare.take(); }
  } const take_back{*this};
  work();
}

}  // namespace retinue
