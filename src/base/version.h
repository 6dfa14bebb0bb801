#pragma once

namespace retinue {

/// This build's version, as "0.7.0".
const char* version();

}  // namespace retinue
