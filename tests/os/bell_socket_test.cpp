// Bytes that wake who polls: each receiver gets one, however many others have not read theirs.
#include "os/sockets/bell_socket.h"

#include <gtest/gtest.h>

#include <vector>

namespace retinue {
namespace {

TEST(BellSocket, ReachesEachOfMoreReceiversThanASendersBufferHolds) {
  const FileDescriptor sender = make_bell_socket();
  std::vector<FileDescriptor> receivers;
  std::vector<std::uint64_t> names;
  for (int i = 0; i < 400; ++i) {
    receivers.push_back(make_bell_socket());
    ASSERT_TRUE(receivers.back());
    names.push_back(name_bell_socket(receivers.back().get()));
  }
  for (const std::uint64_t name : names) EXPECT_TRUE(ring_bell_socket(sender.get(), name, 'd'));
  for (const FileDescriptor& receiver : receivers) EXPECT_TRUE(drain_bell_socket(receiver.get(), 'd'));
}

TEST(BellSocket, DoesNotMindAReceiverThatHasEnough) {
  const FileDescriptor sender = make_bell_socket();
  const FileDescriptor receiver = make_bell_socket();
  const std::uint64_t name = name_bell_socket(receiver.get());
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(ring_bell_socket(sender.get(), name, 'd'));
  EXPECT_TRUE(drain_bell_socket(receiver.get(), 'd'));
  EXPECT_FALSE(drain_bell_socket(receiver.get(), 'd'));
}

}  // namespace
}  // namespace retinue
