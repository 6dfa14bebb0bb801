#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "os/files/file_descriptor.h"
#include "retinue/base/deadline.h"
#include "store/frame.h"
#include "store/handshake.h"
#include "store/token.h"

namespace retinue {

/// The server ended the connection, or is not to be reached any more.
struct ConnectionLost {
  std::string reason;
};

/// Why one attempt to become a member came to nothing.
struct Refused {
  enum class Kind : std::uint8_t {
    kGone,    ///< Nobody is there, or it went away.
    kSilent,  ///< Somebody may be there and says nothing.
    kToken,   ///< The server heard this process's proof, and closed.
  };
  std::string why;
  Kind kind = Kind::kGone;
};

/// The client's part of the handshake. Errors: Refused; UsageError for who is no server of this job.
ServerFacts shake_hands(int socket, const std::string& where, const Token& token, Deadline deadline);

/// A client's connection to a server that took it. One call at a time; after an exception it is of no use.
class StoreConnection {
 public:
  StoreConnection(FileDescriptor socket, ServerFacts facts) : socket_(std::move(socket)), facts_(std::move(facts)) {}

  const ServerFacts& facts() const { return facts_; }

  /// Blocking: until the answer is here. nullopt: it did not come in time.
  /// Errors: ConnectionLost.
  std::optional<Frame> call(std::string_view request, Deadline deadline);

 private:
  FileDescriptor socket_;
  ServerFacts facts_;
};

struct StoreAddress {
  std::string host;
  int port = 0;

  std::string text() const;
};

/// Whether a server that doesn't listen is waited for.
enum class Patience : std::uint8_t {
  kItMayStartLater,
  kItWasThere,
};

/// Blocking: until a server takes this process.
/// Errors: TimeoutError, UsageError; ConnectionLost with kItWasThere.
StoreConnection connect_to_store(const StoreAddress& address, const Token& token, Deadline deadline, Patience patience);

}  // namespace retinue
