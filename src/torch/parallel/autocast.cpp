#include "retinue/torch/autocast.h"

#include <ATen/autocast_mode.h>
#include <c10/util/StringUtil.h>

#include "retinue/base/error.h"

namespace retinue {

Autocast::Autocast(c10::DeviceType device, std::optional<c10::ScalarType> dtype, AutocastOptions options)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(device)),
      was_cache_enabled_(at::autocast::is_autocast_cache_enabled()),
      dtype_before_(at::autocast::get_autocast_dtype(device)) {
  const c10::ScalarType type = dtype.value_or(dtype_before_);
  if (options.enabled && type != c10::ScalarType::BFloat16 && type != c10::ScalarType::Half)
    throw UsageError(c10::str("Autocast: the type is ", c10::toString(type),
                              ": use torch::kBFloat16 or torch::kHalf, or .enabled = false"));
  at::autocast::set_autocast_enabled(device, options.enabled);
  at::autocast::set_autocast_dtype(device, type);
  at::autocast::set_autocast_cache_enabled(options.cache_enabled);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, dtype_before_);
  at::autocast::set_autocast_cache_enabled(was_cache_enabled_);
}

}  // namespace retinue
