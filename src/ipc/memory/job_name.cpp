#include "ipc/memory/job_name.h"

#include <algorithm>
#include <cstring>

namespace retinue {

void set_job_name(JobHeader& header, const std::string& name) {
  const std::size_t bytes = std::min(name.size(), sizeof header.name);
  header.name_bytes.store(0, std::memory_order_release);
  std::memcpy(header.name, name.data(), bytes);
  header.name_bytes.store(static_cast<std::uint32_t>(bytes), std::memory_order_release);  // Pairs with job_name().
}

std::string job_name(const JobHeader& header) {
  const std::size_t bytes = header.name_bytes.load(std::memory_order_acquire);
  return {header.name, std::min(bytes, sizeof header.name)};
}

}  // namespace retinue
