// Executes a program as a container does: with the calls refused that Docker's default profile refuses to a container
// without capabilities. `confined_program new PROGRAM ARGUMENTS...`, or `old` for a profile that knows no call newer
// than Linux 5.10, which answers ENOSYS to the others.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace {

/// Of the profile's list, what a program of this kind could call.
constexpr int kForbidden[] = {SYS_acct,
                              SYS_add_key,
                              SYS_bpf,
                              SYS_get_mempolicy,
                              SYS_kcmp,
                              SYS_keyctl,
                              SYS_mbind,
                              SYS_migrate_pages,
                              SYS_mount,
                              SYS_move_pages,
                              SYS_open_by_handle_at,
                              SYS_perf_event_open,
                              SYS_personality,
                              SYS_pidfd_getfd,
                              SYS_pivot_root,
                              SYS_ptrace,
                              SYS_quotactl,
                              SYS_request_key,
                              SYS_set_mempolicy,
                              SYS_setns,
                              SYS_syslog,
                              SYS_umount2,
                              SYS_unshare,
                              SYS_userfaultfd,
                              SYS_process_vm_readv,
                              SYS_process_vm_writev,
                              SYS_io_uring_setup};

std::vector<sock_filter> filter_of(bool is_old) {
  std::vector<sock_filter> filter = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  const auto refuse = [&filter](unsigned call, unsigned error) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
  };
  for (const int call : kForbidden) refuse(static_cast<unsigned>(call), EPERM);
  refuse(SYS_clone3, ENOSYS);  // Its flags cannot be seen by a filter.
  if (is_old) {
    constexpr unsigned kNewer = 440;  // process_madvise, of 5.10; epoll_pwait2 and all later ones follow.
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, kNewer, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  std::vector<sock_filter> filter = filter_of(std::string(argv[1]) == "old");
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::perror("installing the filter");
    return 3;
  }
  execvp(argv[2], argv + 2);
  std::perror(argv[2]);
  return 4;
}
