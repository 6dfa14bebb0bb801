#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/store/file_store.h"
#include "retinue/store/hash_store.h"
#include "retinue/store/prefix_store.h"
#include "retinue/store/tcp_store.h"

/// Stores of each kind, as their users make them.
namespace retinue::test {

inline constexpr char kToken[] = "a token for tests";

/// A folder that goes with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = std::filesystem::temp_directory_path() / "retinue-store-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw SystemError("mkdtemp", errno);
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path() const { return path_; }
  std::string file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// Where members meet: each join() is another member's store of the same table.
class StorePlace {
 public:
  virtual ~StorePlace() = default;
  virtual std::shared_ptr<Store> join() = 0;
};

class HashPlace : public StorePlace {
 public:
  std::shared_ptr<Store> join() override { return store_; }

 private:
  std::shared_ptr<Store> store_ = std::make_shared<HashStore>();
};

class TcpPlace : public StorePlace {
 public:
  explicit TcpPlace(const std::string& host = "127.0.0.1")
      : server_({.host = host, .is_server = true, .token = kToken}) {}
  std::shared_ptr<Store> join() override {
    return std::make_shared<TcpStore>(TcpStoreOptions{.host = server_.host(), .port = server_.port(), .token = kToken});
  }

 private:
  TcpStore server_;
};

class FilePlace : public StorePlace {
 public:
  std::shared_ptr<Store> join() override {
    return std::make_shared<FileStore>(FileStoreOptions{.path = folder_.file("store")});
  }

 private:
  TemporaryFolder folder_;
};

template <class Inner>
class PrefixPlace : public StorePlace {
 public:
  std::shared_ptr<Store> join() override { return std::make_shared<PrefixStore>("here", inner_.join()); }

 private:
  Inner inner_;
};

struct Kind {
  std::string name;
  std::function<std::unique_ptr<StorePlace>()> make;
};

inline std::vector<Kind> kinds_between_processes() {
  return {
      {"tcp", [] { return std::make_unique<TcpPlace>(); }},
      {"file", [] { return std::make_unique<FilePlace>(); }},
      {"prefix_of_tcp", [] { return std::make_unique<PrefixPlace<TcpPlace>>(); }},
      {"prefix_of_file", [] { return std::make_unique<PrefixPlace<FilePlace>>(); }},
  };
}

inline std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds = kinds_between_processes();
  kinds.push_back({"hash", [] { return std::make_unique<HashPlace>(); }});
  kinds.push_back({"prefix_of_hash", [] { return std::make_unique<PrefixPlace<HashPlace>>(); }});
  return kinds;
}
}  // namespace retinue::test
