#include "os/process/confinement.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <string_view>
#include <vector>

#include "os/files/file_descriptor.h"

namespace retinue {
namespace {

struct Namespace {
  const char* file;
  const char* name;
};

/// Of PIDs and times children may have others than the process itself.
constexpr std::array<Namespace, Confinement::kNamespaces> kNames = {{
    {"cgroup", "cgroup"},
    {"ipc", "IPC"},
    {"mnt", "mount"},
    {"net", "network"},
    {"pid_for_children", "PID"},
    {"time_for_children", "time"},
    {"user", "user"},
    {"uts", "UTS"},
}};

/// "net:[4026531840]": the number is the namespace's inode.
std::uint64_t namespace_of(int folder, const char* file) {
  char text[64];
  const ssize_t bytes = readlinkat(folder, file, text, sizeof text);
  const std::string_view link(text, bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  const std::size_t bracket = link.find('[');
  std::uint64_t inode = 0;
  if (bracket != std::string_view::npos) std::from_chars(link.data() + bracket + 1, link.data() + link.size(), inode);
  return inode;
}

}  // namespace

Confinement Confinement::of_this_thread(const ProcessStatus& status) {
  Confinement found;
  struct stat root {};
  if (stat("/", &root) == 0) found.root = {root.st_dev, root.st_ino};
  // A process that changed its user may not read the folder, which is root's then, but what is in there.
  const FileDescriptor folder(open("/proc/thread-self/ns", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (std::size_t i = 0; folder && i < found.namespaces.size(); ++i)
    found.namespaces[i] = namespace_of(folder.get(), kNames[i].file);
  const std::uint64_t strict_mode = status.number("Seccomp") == 1 ? 1 : 0;
  found.seccomp_filters = static_cast<std::uint32_t>(status.number("Seccomp_filters") + strict_mode);
  return found;
}

std::string Confinement::changes_since(const Confinement& earlier) const {
  if (root != earlier.root) return "root directory";  // Without the old one's /proc nothing else is known.
  std::vector<std::string> changes;
  for (std::size_t i = 0; i < namespaces.size(); ++i)
    if (namespaces[i] != earlier.namespaces[i]) changes.push_back(fmt::format("{} namespace", kNames[i].name));
  if (seccomp_filters != earlier.seccomp_filters) changes.emplace_back("seccomp filters");
  return fmt::format("{}", fmt::join(changes, ", "));
}

}  // namespace retinue
