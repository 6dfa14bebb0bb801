#include "ipc/memory/poller.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <optional>

#include "ipc/memory/job_layout.h"
#include "ipc/memory/ring_owner.h"
#include "os/process/process_calls.h"
#include "os/sockets/bell_socket.h"
#include "os/testing/crash_point.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr int kOwnerShift = 32;
constexpr char kOfADeath = 'd';

std::uint32_t index_of(std::uint64_t ticket) {
  return (static_cast<std::uint32_t>(ticket) - 1) % kMaxPollers;
}

/// From a socket that this process keeps: to make and close one takes several times as long as to send.
bool send_byte(std::uint64_t name) {
  static std::atomic<int> kept{-1};
  int socket = kept.load(std::memory_order_acquire);
  if (socket >= 0 && ring_bell_socket(socket, name)) return true;
  FileDescriptor made = make_bell_socket();  // The program may have closed the other one.
  if (!made || !ring_bell_socket(made.get(), name)) return false;
  if (socket < 0 && kept.compare_exchange_strong(socket, made.get(), std::memory_order_acq_rel)) made.release();
  return true;
}

/// First the byte, so that the death of who rings leaves a poller that still waits, or has it. The poller never waits
/// with a number twice: who is late here takes no later wait's wish away.
/// False: it waits, and could not be told.
template <class Send>
bool ring_entry(PollerEntry& entry, Send send) {
  std::uint32_t waits = entry.waits.load(std::memory_order_seq_cst);
  RETINUE_CRASH_POINT();
  if (waits % 2 == 0) return true;
  if (!send(entry.name.load(std::memory_order_acquire))) return false;
  RETINUE_CRASH_POINT();
  entry.waits.compare_exchange_strong(waits, waits + 1, std::memory_order_seq_cst);
  return true;
}

void stop_waiting(PollerEntry& entry) {
  std::uint32_t waits = entry.waits.load(std::memory_order_relaxed);
  while (!entry.waits.compare_exchange_weak(waits, (waits | 1) + 1, std::memory_order_seq_cst)) continue;
}

/// A free entry, or one whose owner is gone, with this process as its owner. Its index.
std::optional<std::uint32_t> claim_entry(const JobMemory& memory) {
  JobHeader& header = memory.header();
  const std::uint32_t own = own_owner(memory) | PollerEntry::kTaken;
  for (std::uint32_t index = 0; index < kMaxPollers; ++index) {
    PollerEntry& entry = header.pollers[index];
    std::uint32_t owner = entry.owner.load(std::memory_order_acquire);
    if (owner != 0 && !owner_is_reaped(memory, owner & ~PollerEntry::kTaken)) continue;
    if (!entry.owner.compare_exchange_strong(owner, own, std::memory_order_acq_rel)) continue;
    stop_waiting(entry);
    std::uint32_t end = header.poller_end.load(std::memory_order_relaxed);
    while (end <= index && !header.poller_end.compare_exchange_weak(end, index + 1, std::memory_order_acq_rel))
      continue;
    return index;
  }
  return std::nullopt;
}

void watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) throw SystemError("making a descriptor to poll", errno);
}

/// Readable when the job's guardian ends; none where the job has none.
FileDescriptor guardian_pidfd(const JobMemory& memory) {
  const ProcessSlot& guardian = process_slot(memory, kGuardianSlot);
  if (guardian.state.load(std::memory_order_acquire) != ProcessState::kRunning) return {};
  FileDescriptor pidfd = open_pidfd(guardian.pid.load(std::memory_order_relaxed));
  if (guardian.life.owner_died()) throw SystemError("making a descriptor to poll: the guardian was killed", ESRCH);
  return pidfd;
}

}  // namespace

Poller::Poller(const std::shared_ptr<JobMemory>& memory)
    : memory_(memory),
      socket_(make_bell_socket()),
      guardian_(guardian_pidfd(*memory)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      pid_(getpid()) {
  if (!socket_ || !epoll_) throw SystemError("making a descriptor to poll", errno);
  const std::uint64_t name = name_bell_socket(socket_.get());
  watch(epoll_.get(), socket_.get());
  if (guardian_) watch(epoll_.get(), guardian_.get());
  const std::optional<std::uint32_t> index = claim_entry(*memory);
  if (!index)
    throw SystemError(fmt::format("making a descriptor to poll: the job has {} of them already", kMaxPollers), EMFILE);
  ticket_ = std::uint64_t{own_owner(*memory)} << kOwnerShift | (*index + 1);
  entry().name.store(name, std::memory_order_release);
}

Poller::~Poller() {
  if (!is_of_this_process()) return;
  stop_waiting(entry());
  entry().owner.store(0, std::memory_order_release);
}

PollerEntry& Poller::entry() const {
  return memory_->header().pollers[index_of(ticket_)];
}

bool Poller::is_of_this_process() const {
  return pid_ == getpid();
}

bool Poller::wait() {
  const bool has_anyone_died = drain_bell_socket(socket_.get(), kOfADeath);
  std::uint32_t waits = entry().waits.load(std::memory_order_relaxed);
  while (!entry().waits.compare_exchange_weak(waits, (waits + 1) | 1, std::memory_order_seq_cst)) continue;
  return has_anyone_died;
}

void Poller::ring() {
  ring_entry(entry(), [](std::uint64_t name) { return send_byte(name); });
}

bool is_void(const JobMemory& memory, std::uint64_t ticket) {
  const auto owner = static_cast<std::uint32_t>(ticket >> kOwnerShift);
  const PollerEntry& entry = memory.header().pollers[index_of(ticket)];
  return ticket == 0 || entry.owner.load(std::memory_order_acquire) != (owner | PollerEntry::kTaken) ||
         owner_is_reaped(memory, owner);
}

bool ring_poller(const JobMemory& memory, std::uint64_t ticket) {
  return ticket == 0 ||
         ring_entry(memory.header().pollers[index_of(ticket)], [](std::uint64_t name) { return send_byte(name); });
}

void ring_all_pollers(const JobMemory& memory) {
  JobHeader& header = memory.header();
  const std::uint32_t end = header.poller_end.load(std::memory_order_acquire);
  // The guardian keeps none: the ranks that are forked from it would inherit it.
  FileDescriptor socket;
  const auto send = [&](std::uint64_t name) {
    if (!socket) socket = make_bell_socket();
    return socket && ring_bell_socket(socket.get(), name, kOfADeath);
  };
  for (std::uint32_t index = 0; index < end && index < kMaxPollers; ++index) {
    PollerEntry& entry = header.pollers[index];
    if (entry.owner.load(std::memory_order_acquire) == 0) continue;
    if (entry.waits.load(std::memory_order_seq_cst) % 2 != 0) {
      ring_entry(entry, send);
    } else {
      send(entry.name.load(std::memory_order_acquire));  // It looks for what the dead left before it waits again.
    }
  }
}

}  // namespace retinue
