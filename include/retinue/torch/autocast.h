#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace retinue {

struct AutocastOptions {
  bool enabled = true;        ///< False: operations have the types of their tensors, inside of another Autocast too.
  bool cache_enabled = true;  ///< Converted weights are kept until the outermost Autocast ends.
};

/// A guard, torch.autocast: during its lifetime, operations on a device that profit from a short type convert their
/// inputs to it. Its end restores what was before, also if an exception ends it.
///
///   { const Autocast autocast(torch::kCPU, torch::kBFloat16); output = model(x); }
///
/// The backward of such operations has their types, outside of the guard.
/// Threads: it applies to its own thread, on which it must end. Guards may be nested.
class Autocast {
 public:
  /// Begins. Without `dtype` it is the device's: bfloat16 on CPUs, half on CUDA.
  /// Errors: UsageError for a type that isn't kBFloat16 or kHalf.
  explicit Autocast(c10::DeviceType device, std::optional<c10::ScalarType> dtype = std::nullopt,
                    AutocastOptions options = {});
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  bool was_cache_enabled_;
  c10::ScalarType dtype_before_;
};

}  // namespace retinue
