#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

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
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Replaces one of this process's standard streams by a file, as a shell does, as long as the object lives.
class CapturedStream {
 public:
  explicit CapturedStream(int stream) : stream_(stream), kept_(dup(stream)), file_(std::tmpfile()) {
    std::fflush(nullptr);
    dup2(fileno(file_), stream_);
  }
  ~CapturedStream() {
    std::fflush(nullptr);
    dup2(kept_, stream_);
    close(kept_);
    std::fclose(file_);
  }
  CapturedStream(const CapturedStream&) = delete;
  CapturedStream& operator=(const CapturedStream&) = delete;

  std::string text() const {
    std::fflush(nullptr);
    return contents_of("/proc/self/fd/" + std::to_string(fileno(file_)));
  }

 private:
  int stream_;
  int kept_;
  FILE* file_;
};

}  // namespace retinue::test
