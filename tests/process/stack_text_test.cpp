#include "process/symbols/stack_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace retinue {
namespace {

StackLine named(const std::string& function, const std::string& object = "program") {
  StackLine line;
  line.function = function;
  line.object = object;
  line.offset = 0x10;
  return line;
}

std::vector<std::string> functions_of(const std::vector<StackLine>& lines) {
  std::vector<std::string> names;
  for (const StackLine& line : lines) names.push_back(line.function);
  return names;
}

TEST(StackText, TrimsFromTheThrowToTheEntry) {
  const auto lines = trim_stack({
      named("__cxa_throw"),
      named("std::__throw_out_of_range_fmt(char const*, ...)", "libstdc++.so.6"),
      named("load(std::vector<int, std::allocator<int> > const&)"),
      named("train(retinue::RankContext&, int)"),
      named("decltype(auto) std::apply<retinue::detail::entry_thunk<&train>(int)::{lambda()#1}>(int&&)"),
      named("void retinue::detail::entry_thunk<&train>(retinue::RankContext&, std::string const&)"),
      named("retinue::run_function_rank(unsigned int, retinue::StartRequest const&)"),
      named("main"),
      named("__libc_start_call_main", "libc.so.6"),
  });
  EXPECT_EQ(functions_of(lines), (std::vector<std::string>{"load(std::vector<int, std::allocator<int> > const&)",
                                                           "train(retinue::RankContext&, int)"}));
}

TEST(StackText, KeepsWhatOnlyLooksLikePlumbing) {
  const std::vector<std::string> names = {"aborted_by_user()", "raise_alarm(int)", "retinue::all_reduce(float*)",
                                          "my::std_apply()", "main"};
  std::vector<StackLine> lines;
  for (const std::string& name : names) lines.push_back(named(name));
  EXPECT_EQ(functions_of(trim_stack(lines)), names);
}

TEST(StackText, TakesAwayTheRuntimesFunctionsWithoutNames) {
  const auto lines = trim_stack({named("", "libstdc++.so.6"), named("std::terminate()", "libstdc++.so.6"),
                                 named("step()"), named("", "libc.so.6"), named("compare(void const*, void const*)"),
                                 named("", "libstdc++.so.6"), named("", "libc.so.6")});
  EXPECT_EQ(functions_of(lines), (std::vector<std::string>{"step()", "", "compare(void const*, void const*)"}));
}

TEST(StackText, KeepsAStackThatIsNothingButPlumbing) {
  EXPECT_EQ(trim_stack({named("__cxa_throw"), named("retinue::run_child()")}).size(), 2u);
  EXPECT_TRUE(trim_stack({}).empty());
}

StackLine at(StackLine line, std::uint64_t offset) {
  line.offset = offset;
  return line;
}

/// What the library throws is told by its message: of its frames one stays, the call that the user made.
TEST(StackText, OfTheLibrarysOwnErrorsBeginsWithTheUsersCall) {
  const StackLine user = named("train(retinue::Communicator&)");
  const std::vector<StackLine> lines = {
      named("__cxa_throw"),
      at(named("set_failure"), 1),  // A local function that is inlined into the next: without its namespace.
      at(named("retinue::Session::fail(retinue::Waiter::Outcome)"), 1),
      at(named("void retinue::SharingMembers::run<retinue::Call>(int)"), 2),
      at(named("retinue::Communicator::barrier(retinue::CallSite)"), 3),  // Inlined into the user's function.
      at(user, 3),
      at(named("retinue::spawn_like(int)"), 4),
      at(named("main"), 5),
  };
  const std::vector<std::string> all = functions_of({lines.begin() + 1, lines.end()});
  EXPECT_EQ(functions_of(trim_stack(lines, Innermost::kLibrary)),
            (std::vector<std::string>{all.begin() + 3, all.end()}));
  EXPECT_EQ(functions_of(trim_stack(lines)), all);
  const LineRange shown = users_range(lines, Innermost::kLibrary);
  EXPECT_EQ(shown.first, 4u);
}

/// clang keeps the names alone of what is inlined, at -g1.
TEST(StackText, KnowsTheLibrarysInlinedFunctionsByTheirFile) {
  const auto in_file = [](const std::string& function, const std::string& file) {
    StackLine line = at(named(function), 2);
    line.file = file;
    return line;
  };
  const std::vector<StackLine> lines = {
      at(named("retinue::Communicator::Impl::run(int)"), 1),
      in_file("run", "/usr/include/retinue/collective/typed_collectives.h"),
      in_file("all_reduce<std::span<float> >", "include/retinue/collective/typed_collectives.h"),
      in_file("step", "/mine/retinue/train.cpp"), at(named("train()"), 2)};
  EXPECT_EQ(functions_of(trim_stack(lines, Innermost::kLibrary)),
            (std::vector<std::string>{"all_reduce<std::span<float> >", "step", "train()"}));
}

TEST(StackText, PassesWhatLiesBetweenTwoCallsOfTheLibrary) {
  const std::vector<std::string> tensors = {"retinue::ShmBackend::allreduce()",
                                            "c10d::(anonymous namespace)::allreduce()",
                                            "",
                                            "c10d::ProcessGroup::allreduce()",
                                            "retinue::all_reduce(at::Tensor&)",
                                            "train()",
                                            "std::function<void ()>::operator()() const",
                                            "retinue::run()"};
  std::vector<StackLine> lines;
  for (const std::string& name : tensors)
    lines.push_back(at(named(name, name.empty() ? "libtorch_cpu.so" : "p"), lines.size()));
  EXPECT_EQ(functions_of(trim_stack(lines, Innermost::kLibrary)),
            (std::vector<std::string>{tensors.begin() + 4, tensors.end()}));
  // Called by the user, LibTorch's function is the user's business.
  lines.erase(lines.begin() + 4);
  EXPECT_EQ(functions_of(trim_stack(lines, Innermost::kLibrary)).front(), tensors[0]);
  // A thread of the library's own.
  const std::vector<StackLine> helper = {at(named("retinue::A::a()"), 1), at(named("retinue::B::help()"), 2),
                                         at(named("std::thread::run()"), 3), at(named("start_thread", "libc.so.6"), 4)};
  EXPECT_EQ(functions_of(trim_stack(helper, Innermost::kLibrary)).front(), "retinue::B::help()");
}

TEST(StackText, OfAnErrorOfTheUsersBeginsWhereItWasThrown) {
  const std::vector<StackLine> lines = {at(named("add(int, int)"), 1), at(named("retinue::Communicator::run()"), 2),
                                        at(named("train()"), 3)};
  EXPECT_EQ(trim_stack(lines, Innermost::kLibrary).size(), 3u);
  EXPECT_EQ(innermost_of("retinue::PeerLost"), Innermost::kLibrary);
  EXPECT_EQ(innermost_of("retinue::test::Mine"), Innermost::kNews);
  EXPECT_EQ(innermost_of("std::runtime_error"), Innermost::kNews);
}

TEST(StackText, KnowsByFunctionsWhichFramesMayBeShown) {
  const LineRange range =
      users_range({named("__cxa_throw"), named("train()"), named("void retinue::detail::entry_thunk<&train>(int)"),
                   named("main"), named("", "libc.so.6")});
  EXPECT_EQ(range.first, 1u);
  EXPECT_EQ(range.end, 3u);  // What is inlined into the thunk is the user's.
  const LineRange all = users_range({named("train()"), named("main")});
  EXPECT_EQ(all.first, 0u);
  EXPECT_EQ(all.end, 2u);
}

/// The compiler inlines a user's local function into the entry: by functions, nothing but the library's are there.
TEST(StackText, ShowsWhatOfTheUsersIsInlinedIntoTheEntry) {
  const StackLine thrown = named("__cxa_throw");
  const StackLine run = at(named("retinue::Communicator::run(retinue::CallSite)"), 1);
  const StackLine entry = at(named("void retinue::detail::call_entry<&train>(retinue::RankContext&)"), 2);
  const std::vector<StackLine> outside = {at(named("retinue::run_function_rank(unsigned int)"), 3),
                                          at(named("retinue::run_child()"), 4), at(named("main"), 5)};
  std::vector<StackLine> functions = {thrown, run, entry};
  functions.insert(functions.end(), outside.begin(), outside.end());
  const LineRange range = users_range(functions, Innermost::kLibrary);
  EXPECT_EQ(range.first, 1u);
  EXPECT_EQ(range.end, 3u);

  std::vector<StackLine> lines = {thrown,
                                  run,
                                  at(named("void retinue::Communicator::all_reduce<std::span<float> >()"), 2),
                                  at(named("train"), 2),
                                  at(named("invoke_entry<train>"), 2),
                                  entry};
  lines.insert(lines.end(), outside.begin(), outside.end());
  EXPECT_EQ(functions_of(trim_stack(lines, Innermost::kLibrary)),
            (std::vector<std::string>{"void retinue::Communicator::all_reduce<std::span<float> >()", "train"}));
}

TEST(StackText, SaysWhatIsKnownOfAFrame) {
  StackLine full = named("train(int)");
  full.file = "/project/src/train.cpp";
  full.line = 88;
  StackLine no_file = named("helper()");
  StackLine no_name = named("");
  StackLine nothing;
  nothing.offset = 0xbeef;
  EXPECT_EQ(stack_text({full, no_file, no_name, nothing}),
            "#0 train(int) at train.cpp:88 (program+0x10)\n"
            "#1 helper() (program+0x10)\n"
            "#2 program+0x10\n"
            "#3 0xbeef\n");
}

TEST(StackText, TellsARepeatedFunctionOnce) {
  StackLine gap;
  gap.skipped = 1000;
  const std::vector<StackLine> lines = {named("a()"), named("f()"), named("f()"), named("f()"), gap, named("b()")};
  EXPECT_EQ(stack_text(lines),
            "#0 a() (program+0x10)\n"
            "#1 f() (program+0x10)\n"
            "   ... 2 more of the same\n"
            "   ... 1000 more frames\n"
            "#1004 b() (program+0x10)\n");
}

TEST(StackText, ShortensEndlessTemplateNames) {
  EXPECT_LT(stack_text({named("f<" + std::string(10'000, 'x') + ">()")}).size(), 400u);
}

}  // namespace
}  // namespace retinue
