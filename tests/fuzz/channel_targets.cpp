// SimpleQueues and pipes that somebody overwrote.
#include <cereal/types/string.hpp>
#include <cstddef>
#include <string>
#include <utility>

#include "fuzz/harness.h"
#include "ipc/queue/message_chain.h"
#include "retinue/ipc/pipe.h"
#include "retinue/ipc/simple_queue.h"

namespace retinue::fuzz {
namespace {

using namespace std::chrono_literals;

/// All of a chain's header but its lock, or the beginning of its first segment.
std::span<std::byte> part_of_chain(const SharedBlock& block, bool segment) {
  const JobMemory& memory = *Job::instance().memory();
  if (segment) return {memory.at(memory.at<ChainHeader>(block.handle().offset)->first.load()), 256};
  constexpr std::size_t kBehindLock = offsetof(ChainHeader, first);
  return {block.data() + kBehindLock, sizeof(ChainHeader) - kBehindLock};
}

void overwrite_chain(Input& input) {
  const auto how = input.number<std::uint8_t>();
  const std::string large(MessageChain::kMostBytes + 1, 'l');
  detail::Encoded encoded;
  auto queue = SimpleQueue<std::string>::create();
  for (const auto& message : {std::string("small"), large, std::string("x")}) queue.put(message);
  if ((how & 1) != 0) queue.get();
  encoded = detail::encode_value(queue);
  overwrite(input, part_of_chain(encoded.references.at(0), (how & 2) != 0));
  attempt([&] { static_cast<void>(queue.empty()); });
  if ((how & 4) != 0) attempt([&] { queue.put(large); });
  for (int i = 0; i < 3; ++i) attempt([&] { queue.get(0ns); });
  attempt([&] { queue.put((how & 8) != 0 ? "small" : std::string(3000, 'm')); });
  attempt([&] { queue.get(0ns); });
}

void overwrite_pipe(Input& input) {
  const auto how = input.number<std::uint8_t>();
  const bool duplex = (how & 1) != 0;
  auto [first, second] = Pipe<std::string>::create({.duplex = duplex, .message_bytes = 40});
  second.send("small");
  second.send(std::string(100, 'l'));
  const detail::Encoded encoded = detail::encode_value((how & 2) != 0 ? second : first);
  const SharedBlock& block = encoded.references.at(0);
  // Behind what the block table knows of it.
  overwrite(input, std::span(block.data(), block.bytes()).subspan(2 * sizeof(BlockHandle)));
  attempt([&] {
    Connection<std::string> end;
    detail::decode_value(encoded.bytes, end);
    attempt([&] { static_cast<void>(end.poll(0ns)); });
    attempt([&] { end.recv(0ns); });
    attempt([&] { end.send("small", 0ns); });
    attempt([&] { end.send(std::string(100, 'm'), 0ns); });
    attempt([&] { static_cast<void>(end.lost()); });
  });
}

}  // namespace

void simple_queue(Bytes bytes) {
  Input input(bytes);
  without_leaks([&] { overwrite_chain(input); });
}

void pipe(Bytes bytes) {
  Input input(bytes);
  without_leaks([&] { overwrite_pipe(input); });
}

}  // namespace retinue::fuzz
