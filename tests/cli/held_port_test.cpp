#include "held_port.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <list>
#include <set>

using retinue::HeldPort;

namespace {

/// Listens on a port as a rank 0 would. Returns 0 or the errno.
int listen_on(int port, bool reuse_address, in_addr_t host) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (reuse_address) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(host);
  const bool listens = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && listen(fd, 1) == 0;
  const int error = listens ? 0 : errno;
  close(fd);
  return error;
}

TEST(HeldPort, ARankListensBesideIt) {
  const HeldPort port;
  EXPECT_GT(port.number(), 1023);
  EXPECT_EQ(listen_on(port.number(), true, INADDR_LOOPBACK), 0);
  EXPECT_EQ(listen_on(port.number(), true, INADDR_ANY), 0);
}

TEST(HeldPort, NobodyElseGetsItByChance) {
  std::list<HeldPort> held;
  std::set<int> numbers;
  for (int count = 0; count < 200; ++count) numbers.insert(held.emplace_back().number());
  EXPECT_EQ(numbers.size(), held.size());
  EXPECT_EQ(listen_on(held.front().number(), false, INADDR_LOOPBACK), EADDRINUSE);
}

TEST(HeldPort, IsFreeAfterwards) {
  int number = 0;
  {
    const HeldPort port;
    number = port.number();
  }
  EXPECT_EQ(listen_on(number, false, INADDR_ANY), 0);
}

}  // namespace
