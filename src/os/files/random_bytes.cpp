#include "os/files/random_bytes.h"

#include <sys/random.h>

#include <cerrno>

#include "retinue/base/error.h"

namespace retinue {

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  for (std::size_t done = 0; done < count;) {
    const ssize_t got = getrandom(bytes.data() + done, count - done, 0);
    if (got < 0 && errno != EINTR) throw SystemError("getrandom", errno);
    if (got > 0) done += static_cast<std::size_t>(got);
  }
  return bytes;
}

std::string in_hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace retinue
