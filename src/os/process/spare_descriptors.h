#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <vector>

#include "os/files/file_descriptor.h"

namespace retinue {

/// While it lives this process opens no descriptor among the last `count` that its hard limit allows, so that these are
/// there for what must be looked at later. Its end raises the limit as far as it goes. Errors: none.
class DescriptorHeadroom {
 public:
  explicit DescriptorHeadroom(std::size_t count);
  ~DescriptorHeadroom();
  DescriptorHeadroom(const DescriptorHeadroom&) = delete;
  DescriptorHeadroom& operator=(const DescriptorHeadroom&) = delete;
};

/// Holds some descriptors open, for the moment when a process whose limit is not ours to change has no others left.
class SpareDescriptors {
 public:
  /// Holds fewer where there are no more.
  explicit SpareDescriptors(std::size_t count);

  /// Runs `work` while they are free to be opened. Threads: any, one after the other. Errors: those of `work`.
  void lend(const std::function<void()>& work);

 private:
  void take();

  std::mutex mutex_;
  std::vector<FileDescriptor> held_;
};

}  // namespace retinue
