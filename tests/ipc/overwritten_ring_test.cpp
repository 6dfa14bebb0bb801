// Rings in job memory that somebody wrote over: nobody reads or writes outside of them, and nobody looks for ever.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "ipc/memory/job_layout.h"
#include "ipc/ring/message_ring.h"
#include "retinue/base/error.h"
#include "retinue/ipc/archive.h"
#include "retinue/ipc/queue.h"
#include "support/job_test.h"

using namespace std::chrono_literals;
using retinue::JobMemory;
using retinue::MessageRing;
using retinue::Queue;
using retinue::RingHeader;
using retinue::RingResult;
using retinue::RingShape;
using retinue::SharedBlock;
using retinue::SlotPhase;
using retinue::SlotState;
using retinue::UsageError;

namespace {

class OverwrittenRing : public retinue::test::JobTest {
 protected:
  Queue<std::string> queue_ = Queue<std::string>({.capacity = 4});
  retinue::detail::Encoded encoded_ = retinue::detail::encode_value(queue_);
  RingHeader& header_ = *memory_->at<RingHeader>(encoded_.references.at(0).handle().offset);
};

TEST_F(OverwrittenRing, OfWordsTakesNoLongMessages) {
  header_.slot_bytes = sizeof(retinue::WordSlot);
  header_.space_bytes = sizeof(std::uint64_t);
  Queue<std::string> arrived;
  retinue::detail::decode_value(encoded_.bytes, arrived);
  EXPECT_THROW(arrived.try_put("small"), UsageError);
  EXPECT_THROW(arrived.try_put(std::string(100'000, 'l')), UsageError);
}

TEST_F(OverwrittenRing, WhoseSlotsHaveNoRoomForAPayloadIsRefused) {
  header_.space_bytes = 9;
  header_.slot_bytes =
      static_cast<std::uint32_t>((MessageRing::bytes_for({.capacity = 1, .space_bytes = 9}) - sizeof(RingHeader)));
  Queue<std::string> arrived;
  EXPECT_THROW(retinue::detail::decode_value(encoded_.bytes, arrived), UsageError);
}

/// Each slot is a lap ahead of who comes from the one before, a third of all laps.
TEST_F(OverwrittenRing, WhoseLapsGoInACircleIsLeft) {
  constexpr RingShape kShape{.capacity = 3, .space_bytes = 64};
  constexpr int kLapBits = 35;
  const SharedBlock block = SharedBlock::allocate(memory_, MessageRing::bytes_for(kShape));
  MessageRing::lay_out(*memory_, block.handle(), kShape);
  MessageRing ring(*memory_, block.handle());
  const std::size_t slot_bytes = ring.header().slot_bytes;
  for (std::uint64_t i = 0; i < kShape.capacity; ++i) {
    auto& slot = *reinterpret_cast<retinue::WideSlot*>(block.data() + sizeof(RingHeader) + i * slot_bytes);
    slot.state = SlotState((i + 1) * ((std::uint64_t{1} << kLapBits) / 3), SlotPhase::kFull).word();
  }
  EXPECT_EQ(ring.look(), RingResult::kWait);
  retinue::TakenSlot taken;
  EXPECT_EQ(ring.try_take(taken), RingResult::kWait);
}

TEST_F(OverwrittenRing, OfAnyNumberOfLossesEnds) {
  header_.losses.told.store(~std::uint64_t{0});
  header_.losses.count.store(~std::uint64_t{0});
  EXPECT_TRUE(queue_.lost_messages().empty());
}

/// What counts is what the ring was when it was opened.
TEST_F(OverwrittenRing, KeepsItsShapeWhileItIsOpen) {
  header_.capacity = 0;
  header_.slot_bytes = 1 << 20;
  header_.space_bytes = 1 << 30;
  const std::string large(1000, 'l');
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) queue_.put(large);
    EXPECT_FALSE(queue_.put("one more", 200ms));  // Long enough to look for dead processes.
    for (int i = 0; i < 4; ++i) EXPECT_EQ(queue_.get(), large);
  }
}

}  // namespace
