#include "retinue/ipc/job_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include "base/char_field.h"
#include "base/version.h"
#include "ipc/memory/job_layout.h"
#include "ipc/memory/other_version.h"
#include "os/machine/memory.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

void lay_out(JobHeader& header, std::size_t capacity) {
  header.capacity_bytes = capacity;
  header.header_bytes = sizeof(JobHeader);
  header.layout_version = kJobLayoutVersion;
  fill(header.version, version());
  if (getrandom(&header.job_id, sizeof header.job_id, 0) != sizeof header.job_id)
    throw SystemError("getrandom for the job's id", errno);
  BlockTable& blocks = header.blocks;
  blocks.mutex.init();
  blocks.commit_mutex.init();
  header.published.mutex.init();
  blocks.page_bytes = page_bytes();
  blocks.page_map_offset = round_up(sizeof(JobHeader), blocks.page_bytes);
  const std::size_t rest = capacity - blocks.page_map_offset;
  // Each page needs itself and four bytes of the map; data begin where a huge page can.
  blocks.page_count = (rest - kHugePageBytes) / (blocks.page_bytes + sizeof(std::uint32_t));
  blocks.data_offset = round_up(blocks.page_map_offset + blocks.page_count * sizeof(std::uint32_t), kHugePageBytes);
  header.magic = kJobMagic;
}

constexpr std::uint32_t kFirstLayoutWithVersion = 14;

/// "0.7" of "0.7.1": within it the layout and what processes say to each other stay.
std::string_view minor_version(std::string_view version) {
  return version.substr(0, version.rfind('.'));
}

/// Never destroyed: static objects in programs may hold shared memory until after main.
std::shared_ptr<JobMemory>& current_memory() {
  static auto* const current = new std::shared_ptr<JobMemory>;
  return *current;
}
[[maybe_unused]] const std::shared_ptr<JobMemory>& current_at_start = current_memory();  // See os/sync/futex.cpp.

}  // namespace

const std::shared_ptr<JobMemory>& JobMemory::current() {
  if (current_memory() == nullptr)
    throw UsageError(
        "job memory: this needs a Runtime: make `retinue::Runtime runtime(argc, argv);` the first line of main");
  return current_memory();
}

const JobMemory* JobMemory::current_or_null() noexcept {
  return current_memory().get();
}

void JobMemory::set_current(std::shared_ptr<JobMemory> memory) {
  current_memory() = std::move(memory);
}

JobMemory::JobMemory(int memfd, std::byte* base, std::size_t capacity)
    : memfd_(memfd), base_(base), capacity_(capacity) {}

JobMemory::~JobMemory() {
  unmap(base_, capacity_);
  FileDescriptor closed(memfd_);
}

std::shared_ptr<JobMemory> JobMemory::create(std::size_t capacity_bytes) {
  const std::size_t file_limit = file_size_limit_bytes();
  if (capacity_bytes > file_limit)
    throw UsageError(
        fmt::format("job memory of {} bytes is more than this process's file size limit of {} bytes allows: raise it "
                    "(ulimit -f), or set RuntimeOptions::job_memory or RETINUE_JOB_MEMORY lower",
                    capacity_bytes, file_limit));
  if (capacity_bytes == 0)
    // Half of the address space: threads' stacks and all else of this process and its ranks need the rest.
    capacity_bytes = std::min({memory_limit_bytes() / 2, file_limit / page_bytes() * page_bytes(),
                               address_space_left_bytes() / 2 / page_bytes() * page_bytes()});
  const std::size_t smallest = sizeof(JobHeader) + (std::size_t{4} << 20);
  capacity_bytes = round_up(capacity_bytes, page_bytes());
  if (capacity_bytes < smallest)
    throw UsageError(
        fmt::format("job memory of {} bytes is too small: its tables and a first block need {} bytes of "
                    "address space (only what is used costs memory); set RuntimeOptions::job_memory or "
                    "RETINUE_JOB_MEMORY higher, or raise the limits of file sizes and address space (ulimit -f, -v)",
                    capacity_bytes, smallest));
  FileDescriptor fd = create_sealed_memfd("retinue-job", capacity_bytes);
  std::byte* base = map_shared(fd.get(), capacity_bytes);
  std::shared_ptr<JobMemory> memory(new JobMemory(fd.release(), base, capacity_bytes));
  lay_out(memory->header(), capacity_bytes);
  memory->header().inode = file_inode(memory->memfd());
  return memory;
}

std::shared_ptr<JobMemory> JobMemory::attach(int memfd) {
  FileDescriptor own(fcntl(memfd, F_DUPFD_CLOEXEC, 3));
  if (!own) throw SystemError(fmt::format("attaching to job memory behind descriptor {}", memfd), errno);
  const std::size_t bytes = file_bytes(own.get());
  if (bytes < sizeof(JobHeader)) throw UsageError("attaching to job memory: the descriptor is not job memory");
  std::byte* base = map_shared(own.get(), bytes);
  std::shared_ptr<JobMemory> memory(new JobMemory(own.release(), base, bytes));
  const JobHeader& header = memory->header();
  if (header.magic != kJobMagic || header.capacity_bytes != bytes)
    throw UsageError("attaching to job memory: the descriptor is not job memory");
  const std::string made_by =
      header.layout_version < kFirstLayoutWithVersion ? "before 0.7.0" : text_of(header.version);
  if (header.layout_version != kJobLayoutVersion || header.header_bytes != sizeof(JobHeader) ||
      minor_version(made_by) != minor_version(version()))
    throw OtherVersion(fmt::format(
        "attaching to job memory: it was made by another version of Retinue ({}, and this is {}; layouts {} "
        "and {}): build both programs with the same version",
        made_by, version(), header.layout_version, kJobLayoutVersion));
  return memory;
}

bool JobMemory::contains(const void* pointer, std::size_t bytes) const noexcept {
  const auto* first = static_cast<const std::byte*>(pointer);
  return first >= base_ && first < base_ + capacity_ && bytes <= static_cast<std::size_t>(base_ + capacity_ - first);
}

}  // namespace retinue
