// Parameters that the ranks of a rail agree on before the first message, and the slots that they
// register.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/process/read_file.h"
#include "transport/verbs/ring.h"
#include "transport/verbs/greeting.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string where(Rank rank) { return "rank " + std::to_string(rank); }

VerbsGreeting of_rate(double gbps) {
  const VerbsSettings settings;
  VerbsGreeting g;
  g.qps = static_cast<std::uint32_t>(settings.qps);
  g.slots = static_cast<std::uint32_t>(settings.slots);
  g.windows = static_cast<std::uint32_t>(settings.windows);
  g.slot_bytes = static_cast<std::uint32_t>(verbs_shape(settings, gbps, 4, 2).slot_bytes);
  g.pkey = 0xffff;
  return g;
}

std::size_t agreed(const std::vector<VerbsGreeting>& greetings) {
  std::vector<std::string> texts;
  for (const VerbsGreeting& g : greetings) texts.push_back(g.encode());
  return verbs_slot_bytes(verbs_verdict(texts, where));
}

std::string refusal(const std::vector<VerbsGreeting>& greetings) {
  try {
    agreed(greetings);
  } catch (const Error& error) {
    return error.what();
  }
  return "agreed";
}

// A degraded link, another model, an unknown rate: all use the slots that fit the fastest.
TEST(VerbsGreetings, OfMixedSpeedsAgree) {
  EXPECT_EQ(agreed({of_rate(400), of_rate(400)}), 16u << 10);
  EXPECT_EQ(agreed({of_rate(2.5), of_rate(2.5)}), (64u << 10) + 64);
  EXPECT_EQ(agreed({of_rate(400), of_rate(2.5), of_rate(800)}), 16u << 10);
  EXPECT_EQ(agreed({of_rate(2.5), of_rate(0)}), 16u << 10);
}

TEST(VerbsGreetings, OfAnUnknownRateAreNotThoseOfASlowPort) {
  EXPECT_EQ(slot_bytes_for(0), slot_bytes_for(800));
  EXPECT_NE(slot_bytes_for(0), slot_bytes_for(10));
}

TEST(VerbsGreetings, NameWhatDiffers) {
  VerbsGreeting other = of_rate(400);
  other.chosen = 1;
  EXPECT_EQ(refusal({of_rate(400), other}), "agreed");
  other.slot_bytes = 4096;
  EXPECT_THAT(refusal({of_rate(400), of_rate(400), other}),
              AllOf(HasSubstr("WEFT_VERBS_SLOT_BYTES"), HasSubstr("rank 2"), HasSubstr("4096")));
  other = of_rate(400);
  other.windows = 3;
  EXPECT_THAT(refusal({of_rate(400), other}), HasSubstr("WEFT_VERBS_WINDOWS is 16 on rank 0"));
  other = of_rate(400);
  other.ethernet = 1;
  EXPECT_THAT(refusal({of_rate(400), other}),
              AllOf(HasSubstr("InfiniBand"), HasSubstr("WEFT_RAILS")));
  other = of_rate(400);
  other.pkey = 0x8001;
  EXPECT_THAT(refusal({of_rate(400), other}), AllOf(HasSubstr("0x8001"), HasSubstr("0xffff")));
  other.pkey = 0x7fff;  // a limited member of the same partition
  EXPECT_EQ(refusal({of_rate(400), other}), "agreed");
}

TEST(VerbsGreetings, SayWhoseFaultItIs) {
  const std::string good = of_rate(400).encode();
  const auto verdict = [&](const std::string& bad) {
    return verbs_verdict(std::vector<std::string>{good, bad}, where);
  };
  EXPECT_THROW(verbs_slot_bytes(verdict(kVerbsCut + std::string("its port is down"))), StatusError);
  try {
    verbs_slot_bytes(verdict(kVerbsBroken + std::string("no such device")));
    FAIL();
  } catch (const StatusError&) {
    FAIL() << "the fabric is not at fault";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1"), HasSubstr("no such device")));
  }
  EXPECT_THROW(verbs_slot_bytes(verdict("")), Error);
  EXPECT_THROW(verbs_slot_bytes(verdict(good + "x")), Error);
  EXPECT_THROW(verbs_slot_bytes(""), Error);
}

// Memory grows with the window and the number of rails, not with the peers.
TEST(VerbsShapes, StayBelowTheirMemory) {
  VerbsSettings settings;
  for (const int rails : {1, 2, 8, 16})
    for (const int ranks : {1, 2, 9, 64, 1000, 100'000})
      for (const int qps : {1, 4, 64})
        for (const double rate : {0.0, 2.5, 400.0}) {
          settings.qps = qps;
          const VerbsShape shape = verbs_shape(settings, rate, ranks, rails);
          EXPECT_GE(shape.places, 1);
          EXPECT_LE(shape.places, std::max(1, ranks - 1));
          EXPECT_GE(shape.slot_bytes, 1024u);
          EXPECT_LE(2 * shape.half * static_cast<std::size_t>(rails),
                    kVerbsMemory + static_cast<std::size_t>(rails) * 8192)
              << ranks << " ranks, " << rails << " rails, " << qps << " queue pairs";
        }
  settings.qps = 1;
  EXPECT_EQ(verbs_shape(settings, 400, 8192, 8).half, verbs_shape(settings, 400, 65, 8).half);
  EXPECT_EQ(verbs_shape(settings, 400, 4, 2).slot_bytes, 16u << 10) << "a small job has it all";
}

// Longer messages need RTS, CTS, and registered memory.
TEST(VerbsShapes, OfAnySizeHaveSlotsForMessagesOf8KiB) {
  const VerbsSettings settings;
  for (const int ranks : {2, 65, 1024, 8192})
    for (const int rails : {1, 2, 4, 8})
      for (const double rate : {10.0, 100.0, 400.0}) {
        const VerbsShape shape = verbs_shape(settings, rate, ranks, rails);
        EXPECT_GE(shape.slot_bytes, (8u << 10) + kVerbsFrontBytes) << ranks << ", " << rails;
        EXPECT_GE(shape.places * rails, std::min(ranks - 1, 64)) << ranks << ", " << rails;
        EXPECT_LE(2 * shape.half * static_cast<std::size_t>(rails), std::size_t{128} << 20);
      }
}

// docs/limits.md
TEST(VerbsLimits, OfThePageAreThoseOfTheCode) {
  const std::string page = read_file(std::string(WEFT_SOURCE_DIR) + "/docs/limits.md");
  ASSERT_NE(page, "");
  const VerbsSettings s;
  const int entries = VerbsRecvCredits::recv_depth(s.slots, s.windows) + s.send_depth;
  const auto grouped = [](std::size_t n) {
    std::string text = std::to_string(n);
    for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
    return text;
  };
  for (const int ranks : {8, 64, 1024, 8192})
    for (const int rails : {1, 8}) {
      const VerbsShape shape = verbs_shape(s, 400, ranks, rails);
      const auto peers = static_cast<std::size_t>(shape.places * rails);
      const double pinned = 2.0 * static_cast<double>(shape.half) * rails / (1 << 20);
      const std::string row = fmt::format("| {} | {} | {} | {} | {} | {:.1f} | {} | {} |\n",
                                          grouped(static_cast<std::size_t>(ranks)), rails,
                                          grouped(shape.slot_bytes), shape.places, peers, pinned,
                                          grouped(peers * static_cast<std::size_t>(entries)),
                                          grouped(static_cast<std::size_t>(ranks - 1)));
      EXPECT_NE(page.find(row), std::string::npos) << "the row is: " << row;
    }
}

// Link retraining, or a sweep of the subnet manager, takes 3 to 10 s.
TEST(VerbsTimeouts, OfASingleRailOutlastALinkThatIsAwayFor10Seconds) {
  const VerbsSettings settings;
  const auto seconds = [&](bool replaceable) {
    return 4.096e-6 * static_cast<double>(1u << timeout_for(replaceable)) *
           (settings.retry_count + 1);
  };
  EXPECT_GT(seconds(false), 10.0);
  EXPECT_LT(seconds(true), 3.0) << "another rail takes over";
}

}  // namespace
}  // namespace weft
