#pragma once

#include <string>
#include <string_view>

#include "retinue/ipc/queue_base.h"

namespace retinue {

/// A line that says which message is lost, of what and with whom; `of` as "a queue of capacity 4".
std::string loss_text(const LostMessage& lost, std::string_view of);

/// "rank 2 (pid 4711)", or what is known of that.
std::string consumer_text(int rank, int pid);

}  // namespace retinue
