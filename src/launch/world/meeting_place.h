#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "retinue/launch/join_world.h"
#include "retinue/launch/world_place.h"
#include "retinue/store/store.h"

namespace retinue {

/// Where an init method says that ranks meet, and what it says of their place.
struct MeetingPlace {
  std::string host = {};  ///< With a port: a TCP store there.
  int port = 0;
  std::string path = {};  ///< Else a file.
  bool is_chosen = true;  ///< By the program or its user.
  std::optional<int> rank = std::nullopt;
  std::optional<int> world_size = std::nullopt;

  std::string name() const;
};

/// Errors: UsageError for a method that isn't there, or is wrong.
MeetingPlace meeting_place_of(const std::string& init_method);

/// What "env://" means for ranks that Retinue did not start. Errors: UsageError where the environment says nothing.
MeetingPlace meeting_place_of_environment(const WorldPlace& place);

/// For the rank at `place`, in `options`' time.
/// Blocking: until rank 0's store is there; that it isn't is reported as a late rank is. Errors: the store's.
std::shared_ptr<Store> open_store(const MeetingPlace& meeting, const WorldPlace& place, const WorldOptions& options);

/// At the end of rank 0's process, which ends the store: waits, at most a second, until the others have set `keys`, by
/// which they say that they have read what all were promised.
void wait_for_readers_at_exit(const std::shared_ptr<Store>& store, std::vector<std::string> keys);

}  // namespace retinue
