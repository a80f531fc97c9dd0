// Changes of counters: known, wrapped, reset, saturated, unknown; and the width of each counter.
#include "perf/validate/facts/counter.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace weft::fabric {
namespace {

constexpr std::uint64_t kMax64 = UINT64_MAX;
constexpr std::uint64_t kMax32 = UINT32_MAX;

Reading reading_of(std::uint64_t value) { return {ReadingState::kValue, value}; }

struct CounterCase {
  const char* counter;
  std::uint64_t before, after;
  ChangeState state;
  std::uint64_t change;
};

TEST(FabricCounter, Changes) {
  constexpr CounterCase kCases[] = {
      // Port counters stop at ceilings, which differ.
      {"ib.link_downed", 0, 0, ChangeState::kKnown, 0},
      {"ib.link_downed", 3, 5, ChangeState::kKnown, 2},
      {"ib.link_downed", 254, 255, ChangeState::kSaturated, 1},
      {"ib.link_downed", 255, 255, ChangeState::kSaturated, 0},
      {"ib.link_downed", 255, 2, ChangeState::kReset, 2},
      {"ib.link_downed", 9, 0, ChangeState::kReset, 0},
      {"ib.excessive_buffer_overrun_errors", 15, 15, ChangeState::kSaturated, 0},
      {"ib.local_link_integrity_errors", 14, 15, ChangeState::kSaturated, 1},
      {"ib.port_xmit_discards", 65535, 65535, ChangeState::kSaturated, 0},
      {"ib.port_xmit_discards", 255, 256, ChangeState::kKnown, 1},
      {"ib.symbol_error", 65534, 65535, ChangeState::kSaturated, 1},
      {"ib.port_xmit_wait", kMax32, kMax32, ChangeState::kSaturated, 0},
      // A port with 64-bit counters.
      {"ib.port_xmit_wait", kMax32, kMax32 + 5, ChangeState::kKnown, 5},
      {"ib.port_xmit_data", kMax32, kMax32, ChangeState::kSaturated, 0},
      {"ib.port_xmit_data", kMax32 + 1, kMax32 + 9, ChangeState::kKnown, 8},
      // Queue counters of mlx5 wrap at 32 bits; congestion counters have 64.
      {"hw.out_of_sequence", kMax32, 4, ChangeState::kWrapped, 5},
      {"hw.out_of_sequence", kMax32, kMax32, ChangeState::kKnown, 0},
      {"hw.out_of_sequence", 1000, 3, ChangeState::kReset, 3},
      {"hw.np_cnp_sent", kMax32, 4, ChangeState::kReset, 4},
      {"hw.np_cnp_sent", kMax32, kMax32 + 4, ChangeState::kKnown, 4},
      // A software device has 64-bit counters of the same names.
      {"hw.duplicate_request", kMax32 + 8, kMax32 + 9, ChangeState::kKnown, 1},
      {"hw.duplicate_request", kMax32 + 8, 2, ChangeState::kReset, 2},
      {"net.rx_bytes", kMax64 - 1, 3, ChangeState::kWrapped, 5},
      {"net.rx_bytes", 100, 3, ChangeState::kReset, 3},
  };
  for (const CounterCase& c : kCases) {
    const Change change =
        difference(reading_of(c.before), reading_of(c.after), kind_of_counter(c.counter));
    EXPECT_EQ(change.state, c.state) << c.counter << " " << c.before << " to " << c.after;
    EXPECT_EQ(change.change, c.change) << c.counter << " " << c.before << " to " << c.after;
  }
}

TEST(FabricCounter, OfAReadingThatIsNoValueNothingIsKnown) {
  for (const ReadingState state :
       {ReadingState::kAbsent, ReadingState::kNotAvailable, ReadingState::kUnreadable}) {
    const Reading none{state, 0};
    EXPECT_EQ(difference(none, reading_of(1), {}).state, ChangeState::kUnknown);
    EXPECT_EQ(difference(reading_of(1), none, {}).state, ChangeState::kUnknown);
    EXPECT_FALSE(difference(none, none, {}).exact());
  }
}

TEST(FabricCounter, OnlyKnownAndWrappedAreExact) {
  EXPECT_TRUE((Change{ChangeState::kKnown, 1}).exact());
  EXPECT_TRUE((Change{ChangeState::kWrapped, 1}).exact());
  EXPECT_FALSE((Change{ChangeState::kReset, 1}).exact());
  EXPECT_FALSE((Change{ChangeState::kSaturated, 1}).exact());
}

}  // namespace
}  // namespace weft::fabric
