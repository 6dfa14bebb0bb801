#include "os/files/private_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "os/files/descriptor_calls.h"
#include "os/files/environment.h"
#include "os/files/file_descriptor.h"
#include "os/files/random_bytes.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::size_t kMostBytes = 64 << 10;

void check_privacy(int fd, const std::string& path) {
  struct stat about {};
  if (fstat(fd, &about) != 0) throw SystemError(fmt::format("looking at {}", path), errno);
  if (!S_ISREG(about.st_mode) || about.st_size > static_cast<off_t>(kMostBytes))
    throw UsageError(fmt::format("{} is not a regular file of at most {} bytes: remove it", path, kMostBytes));
  if (about.st_uid != geteuid())
    throw UsageError(fmt::format("{} belongs to user {}, not to user {}, who runs this program: remove it", path,
                                 about.st_uid, geteuid()));
  if ((about.st_mode & 077) != 0)
    throw UsageError(
        fmt::format("{} may be read or written by other users (mode {:04o}), so they may know its secret: "
                    "remove it, or chmod 600 if you know that nobody read or changed it",
                    path, about.st_mode & 07777));
}

/// Folders on the way to the file, those that are missing; but none on the way to a user's own that isn't there.
void make_folders(const std::string& path) {
  const std::string home = find_variable("HOME").value_or("");
  if (!home.empty() && path.starts_with(home + "/") && access(home.c_str(), F_OK) != 0)
    throw UsageError(fmt::format("{} cannot be created: the folder {}, which HOME names, does not exist", path, home));
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string folder = path.substr(0, slash);
    if (mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) continue;
    const int error = errno;
    if (access(folder.c_str(), F_OK) != 0) throw SystemError(fmt::format("creating the folder {}", folder), error);
  }
}

}  // namespace

std::optional<std::string> read_private_file(const std::string& path) {
  // Non-blocking, or a FIFO of that name would stop the process.
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd && errno == ENOENT) return std::nullopt;
  if (!fd) throw SystemError(fmt::format("opening {}", path), errno);
  check_privacy(fd.get(), path);
  std::string text;
  std::array<char, 4096> room;
  while (text.size() <= kMostBytes) {
    const ssize_t got = read(fd.get(), room.data(), room.size());
    if (got == 0) break;
    if (got < 0 && errno != EINTR) throw SystemError(fmt::format("reading {}", path), errno);
    if (got > 0) text.append(room.data(), static_cast<std::size_t>(got));
  }
  return text;
}

bool make_private_file(const std::string& path, const std::string& text) {
  make_folders(path);
  // Written under a name of its own and then linked: who reads at the same time never sees a part, and of several who
  // make it one wins.
  const std::string draft = fmt::format("{}.{}", path, in_hex(random_bytes(8)));
  const FileDescriptor fd(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) throw SystemError(fmt::format("creating {}", draft), errno);
  int error = 0;
  try {
    if (!write_all(fd.get(), text)) throw SystemError(fmt::format("writing {}", draft), errno);
    if (link(draft.c_str(), path.c_str()) != 0) error = errno;
  } catch (...) {
    unlink(draft.c_str());
    throw;
  }
  unlink(draft.c_str());
  if (error != 0 && error != EEXIST) throw SystemError(fmt::format("creating {}", path), error);
  return error == 0;
}

}  // namespace retinue
