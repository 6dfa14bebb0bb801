// Ranks meet in a store that the program serves, and in a file.
// [includes]
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "retinue/base/error.h"
#include "retinue/launch/rank_context.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"
#include "retinue/store/file_store.h"
#include "retinue/store/prefix_store.h"
#include "retinue/store/tcp_store.h"
// [/includes]

namespace {

using namespace std::chrono_literals;

// [meet]
void meet(retinue::RankContext& context, int port) {
  retinue::TcpStore store({.host = "127.0.0.1", .port = port});
  store.set(fmt::format("shard of {}", context.rank()), fmt::format("part-{}.bin", context.rank()));
  if (context.rank() != 0) return;
  for (const std::string& shard : store.multi_get({"shard of 0", "shard of 1", "shard of 2"}))  // Waits for them.
    fmt::print("{}\n", shard);
}
// [/meet]

void elect(retinue::RankContext& context, const std::string& path) {
  // [file]
  retinue::FileStore store({.path = path, .world_size = context.world_size()});
  const std::string mine = fmt::format("rank {}", context.rank());
  const std::string chief = store.compare_set("chief", "", mine);  // The first one stays.
  // [/file]
  if (store.add("agreed on " + chief, 1) == context.world_size()) fmt::print("all have the same chief\n");
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);

  // [serve]
  auto store = std::make_shared<retinue::TcpStore>(retinue::TcpStoreOptions{.is_server = true});  // On a free port.
  retinue::spawn<meet>({.nprocs = 3}, store->port());
  // [/serve]

  // [prefix]
  retinue::PrefixStore epoch("epoch 1", store);
  fmt::print("{} of {} steps\n", epoch.add("steps", 1), 100);
  // [/prefix]

  // [timeout]
  try {
    store->wait({"shard of 0", "shard of 3"}, 50ms);
  } catch (const retinue::TimeoutError& error) {
    fmt::print("{}\n", error.what());  // ... nobody set the key 'shard of 3' in time
  }
  // [/timeout]

  std::string folder = std::filesystem::temp_directory_path() / "stores-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return EXIT_FAILURE;
  retinue::spawn<elect>({.nprocs = 3}, folder + "/store");
  fmt::print("the file is {}\n", std::filesystem::exists(folder + "/store") ? "left" : "gone");
  std::filesystem::remove_all(folder);
}
