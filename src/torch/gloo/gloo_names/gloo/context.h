#pragma once

#include <chrono>
#include <string>
#include <vector>

/// What c10d's ProcessGroupGloo.hpp names of gloo, whose own headers LibTorch doesn't come with: as much as the
/// compiler needs to read that header. Objects of these classes are made, used and destroyed by LibTorch alone
/// (docs/decisions/0009-gloo-of-libtorch.md).
namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace transport {

class Device;

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer();
};

}  // namespace transport

namespace rendezvous {

class Store {
 public:
  virtual ~Store();
  virtual void set(const std::string& key, const std::vector<char>& value) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) = 0;
};

}  // namespace rendezvous
}  // namespace gloo
