#include "collective/elements.h"

namespace retinue::test {

RETINUE_ELEMENTS()

}  // namespace retinue::test
