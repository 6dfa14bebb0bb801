#include "retinue/os/detail/standard_error.h"

#include <unistd.h>

#include "os/files/descriptor_calls.h"

namespace retinue {

void write_standard_error(std::string_view lines) {
  static_cast<void>(write_all(STDERR_FILENO, lines));
}

}  // namespace retinue
