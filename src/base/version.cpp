#include "base/version.h"

namespace retinue {

const char* version() {
  return RETINUE_VERSION;
}

}  // namespace retinue
