#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/wait_until.h"

namespace retinue::test {

/// An empty directory that goes with the object.
class Folder {
 public:
  Folder() {
    std::string path = std::filesystem::temp_directory_path() / "retinue-test-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = path;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// All of a file; a text that no file holds if it can't be read.
inline std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "<no file " + path + ">";
  std::ostringstream text;
  text << file.rdbuf();  // Unlike an iterator, this throws nothing where the process of a /proc file goes meanwhile.
  return text.str();
}

/// Replaces one of this process's standard streams, as a shell does, as long as the object lives.
class ReplacedStream {
 public:
  ReplacedStream(int stream, int by) : stream_(stream), kept_(fcntl(stream, F_DUPFD_CLOEXEC, 3)) {
    std::fflush(nullptr);
    dup2(by, stream_);
  }
  ~ReplacedStream() {
    std::fflush(nullptr);
    dup2(kept_, stream_);
    close(kept_);
  }
  ReplacedStream(const ReplacedStream&) = delete;
  ReplacedStream& operator=(const ReplacedStream&) = delete;

 private:
  int stream_;
  int kept_;
};

/// A file in place of a standard stream.
class CapturedStream {
 public:
  explicit CapturedStream(int stream) : file_(std::tmpfile()), replaced_(stream, fileno(file_)) {}
  ~CapturedStream() { std::fclose(file_); }
  CapturedStream(const CapturedStream&) = delete;
  CapturedStream& operator=(const CapturedStream&) = delete;

  std::string text() const {
    std::fflush(nullptr);
    return contents_of("/proc/self/fd/" + std::to_string(fileno(file_)));
  }

 private:
  FILE* file_;
  ReplacedStream replaced_;
};

/// A pipe in place of a standard stream. Nobody reads it until read_all() is called.
class PipedStream {
 public:
  explicit PipedStream(int stream) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    read_end_ = ends[0];
    replaced_ = std::make_unique<ReplacedStream>(stream, ends[1]);
    close(ends[1]);
  }
  ~PipedStream() { close_reader(); }
  PipedStream(const PipedStream&) = delete;
  PipedStream& operator=(const PipedStream&) = delete;

  void close_reader() {
    if (read_end_ >= 0) close(std::exchange(read_end_, -1));
  }
  /// Gives the stream back, then reads until the last of those who write has closed it.
  std::string read_all() {
    replaced_.reset();
    return read_to_end();
  }
  /// The same, as long as this process keeps the stream: to be called by a thread.
  std::string read_to_end() const {
    std::string text;
    std::string buffer(std::size_t{1} << 16, '\0');
    for (ssize_t bytes = 0; (bytes = read(read_end_, buffer.data(), buffer.size())) > 0;)
      text.append(buffer, 0, static_cast<std::size_t>(bytes));
    return text;
  }
  void give_back() { replaced_.reset(); }

 private:
  int read_end_ = -1;
  std::unique_ptr<ReplacedStream> replaced_;
};

/// The children of `parent` that are called `name`.
inline std::vector<pid_t> children_called(pid_t parent, const std::string& name) {
  std::vector<pid_t> found;
  std::ifstream children("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children");
  for (pid_t pid = 0; children >> pid;)
    if (contents_of("/proc/" + std::to_string(pid) + "/comm") == name + "\n") found.push_back(pid);
  return found;
}

}  // namespace retinue::test
