#include "collective/parking.h"

#include <thread>

namespace retinue::test {
namespace {

constexpr Posts kPosts{is_sanitized() ? 1000 : 4000, std::chrono::seconds(20)};

class Parking : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Parking, testing::Values(2, 3, 5));

TEST_P(Parking, LosesNoWakeUp) {
  check_that_no_wake_up_is_lost(GetParam(), kPosts);
}

TEST(ParkingOfOne, LosesNoInterruption) {
  run_ranks(1, [](const JobGroup& group) {
    Session session(group, {.timeout = kForever, .waiting = Waiting::kPolite});
    session.waiter().set_look_up(kForever);
    OneCaller callers("a test\'s group");
    OperationEngine engine(session, callers);
    MessageCalls messages(session, engine);
    Meeting::Place places[2] = {};
    std::thread interrupter([&] {
      Meeting meeting(places, 1, 2, kPosts);
      std::mt19937 random(1);
      while (meeting.meet()) {
        pause_a_moment(random);
        engine.interrupt();
      }
    });
    Meeting meeting(places, 0, 2, kPosts);
    std::mt19937 random(2);
    int never = 0;
    const Request request =
        messages.start(P2POp::irecv(std::as_writable_bytes(std::span(&never, 1)), 0, 0), CallSite());
    while (meeting.meet()) {
      pause_a_moment(random);
      EXPECT_FALSE(Request::wait_any({&request, 1}));
    }
    interrupter.join();
  });
}

}  // namespace
}  // namespace retinue::test
