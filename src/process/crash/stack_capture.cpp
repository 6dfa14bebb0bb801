#include "process/crash/stack_capture.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string_view>

#include "process/crash/crash_writer.h"

namespace retinue {
namespace {

// The interrupted code lies a few frames out of the handler: the sanitizers' wrappers are all that comes between.
constexpr std::size_t kMaxHandlerFrames = 16;
// A stack overflow is walked to its far end; the limit ends the walk on a stack that was overwritten into a ring.
constexpr std::size_t kMaxInterruptedSteps = std::size_t{1} << 20;

char program_path[sizeof CrashRecord::Object::path];
char start_directory[sizeof CrashRecord::Object::path];

struct Walk {
  RawStack* stack;
  std::uintptr_t first_pc;
  std::size_t max_steps;
  std::size_t steps = 0;
  bool reached = false;
};

void push(RawStack& stack, std::uintptr_t pc) {
  if (stack.inner_count < RawStack::kInner) {
    stack.inner[stack.inner_count++] = pc;
    return;
  }
  // `outer` is a ring while the walk lasts; finish() puts it in order.
  stack.outer[stack.outer_count++ % RawStack::kOuter] = pc;
}

void finish(RawStack& stack) {
  if (stack.outer_count <= RawStack::kOuter) return;
  stack.skipped = stack.outer_count - RawStack::kOuter;
  std::rotate(stack.outer, stack.outer + stack.outer_count % RawStack::kOuter, stack.outer + RawStack::kOuter);
  stack.outer_count = RawStack::kOuter;
}

_Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) {
  Walk& walk = *static_cast<Walk*>(argument);
  if (walk.steps++ >= walk.max_steps) return _URC_END_OF_STACK;
  int is_before_instruction = 0;
  const std::uintptr_t pc = _Unwind_GetIPInfo(context, &is_before_instruction);
  if (!walk.reached) {
    if (pc != walk.first_pc) return walk.steps < kMaxHandlerFrames ? _URC_NO_REASON : _URC_END_OF_STACK;
    walk.reached = true;
  }
  if (pc != 0) push(*walk.stack, is_before_instruction ? pc : pc - 1);
  return _URC_NO_REASON;
}

/// The loaded object around `pc`, or nullptr.
const link_map* object_of(std::uintptr_t pc) {
  dl_find_object found{};
  return _dl_find_object(reinterpret_cast<void*>(pc), &found) == 0 ? found.dlfo_link_map : nullptr;
}

bool is_code(std::uintptr_t pc) {
  return object_of(pc) != nullptr;
}

#if defined(__x86_64__)
std::uintptr_t program_counter_of(const ucontext_t& context) {
  return static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
}

// As if the function at the program counter returned at once.
void step_out(ucontext_t& context) {
  auto& registers = context.uc_mcontext.gregs;
  registers[REG_RIP] = *reinterpret_cast<const greg_t*>(registers[REG_RSP]);
  registers[REG_RSP] += static_cast<greg_t>(sizeof(greg_t));
}
#elif defined(__aarch64__)
std::uintptr_t program_counter_of(const ucontext_t& context) {
  return context.uc_mcontext.pc;
}

void step_out(ucontext_t& context) {
  context.uc_mcontext.pc = context.uc_mcontext.regs[30];
}
#else
#error "Retinue reads the registers of x86_64 and aarch64 only"
#endif

std::string_view path_of(const link_map& map) {
  return map.l_name == nullptr || map.l_name[0] == '\0' ? std::string_view(program_path) : std::string_view(map.l_name);
}

std::uint32_t index_of_object(CrashRecord& record, const link_map& map) {
  char path[sizeof CrashRecord::Object::path];
  const std::string_view name = path_of(map);
  FixedText text(path);
  if (name.find('/') != std::string_view::npos && name[0] != '/') text << start_directory << "/";
  text << name;
  for (std::uint32_t i = 0; i < record.object_count; ++i) {
    if (std::strcmp(record.objects[i].path, path) == 0) return i;
  }
  if (record.object_count == CrashRecord::kMaxObjects) return CrashRecord::kNoObject;
  std::memcpy(record.objects[record.object_count].path, path, sizeof path);
  return record.object_count++;
}

void write_frame(CrashRecord& record, std::uintptr_t pc) {
  if (record.frame_count == CrashRecord::kMaxFrames) return;
  CrashRecord::Frame& frame = record.frames[record.frame_count];
  frame = {.offset = pc, .object = CrashRecord::kNoObject};
  if (const link_map* object = object_of(pc)) {
    frame.object = index_of_object(record, *object);
    if (frame.object != CrashRecord::kNoObject) frame.offset = pc - object->l_addr;
  }
  // A crash of the crash handler leaves the frames up to here.
  std::atomic_signal_fence(std::memory_order_release);
  ++record.frame_count;
}

}  // namespace

void prepare_stack_capture() {
  const ssize_t bytes = readlink("/proc/self/exe", program_path, sizeof program_path - 1);
  program_path[std::max<ssize_t>(bytes, 0)] = '\0';
  if (getcwd(start_directory, sizeof start_directory) == nullptr) start_directory[0] = '\0';
  RawStack stack;
  capture_stack(stack, {});
  is_code(stack.inner[0]);
}

[[gnu::noinline]] void capture_stack(RawStack& stack, const CaptureOptions& options) {
  const std::uintptr_t caller = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  Walk walk{.stack = &stack, .first_pc = options.first_pc ? options.first_pc : caller, .max_steps = options.max_steps};
  _Unwind_Backtrace(visit, &walk);
  if (!walk.reached) push(stack, walk.first_pc - 1);
  finish(stack);
}

void capture_interrupted_stack(RawStack& stack, ucontext_t& context) {
  const std::uintptr_t fault_pc = program_counter_of(context);
  const mcontext_t saved = context.uc_mcontext;
  bool stepped_out = false;
  if (!is_code(fault_pc)) {
    step_out(context);
    stepped_out = is_code(program_counter_of(context));
    if (!stepped_out) context.uc_mcontext = saved;
  }
  if (stepped_out) push(stack, fault_pc);
  Walk walk{.stack = &stack, .first_pc = program_counter_of(context), .max_steps = kMaxInterruptedSteps};
  _Unwind_Backtrace(visit, &walk);
  if (!walk.reached) push(stack, walk.first_pc);
  // The unwinder takes what it finds under a signal frame for an exact address; here it is a return address.
  if (stepped_out && stack.inner_count > 1) --stack.inner[1];
  context.uc_mcontext = saved;
  finish(stack);
}

std::uintptr_t stack_pointer_of(const ucontext_t& context) {
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RSP]);
#else
  return context.uc_mcontext.sp;
#endif
}

void write_frames(const RawStack& stack, CrashRecord& record) {
  record.frame_count = 0;
  record.object_count = 0;
  for (std::size_t i = 0; i < stack.inner_count; ++i) write_frame(record, stack.inner[i]);
  if (stack.skipped != 0) record.frames[record.frame_count++] = {.offset = stack.skipped, .object = kSkippedFrames};
  for (std::size_t i = 0; i < stack.outer_count; ++i) write_frame(record, stack.outer[i]);
}

}  // namespace retinue
