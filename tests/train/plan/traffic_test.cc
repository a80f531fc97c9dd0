// What a job's ranks send each other in a step: the planner's bytes, call by call.
#include "train/plan/traffic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "topo/base/status.h"

namespace weft::train {
namespace {

using ::testing::HasSubstr;

Layout layout_of(int tp, int pp, int dp) {
  Layout l;
  l.tp = tp;
  l.pp = pp;
  l.dp = dp;
  l.microbatches = 512 / dp;
  return l;
}

// Bytes that a rank sends in a step along an axis: a ring moves (n - 1) / n of a message per
// gather or reduction; the last stage sends no activations on, and the first none back.
std::map<TrafficAxis, double> sent(const JobTraffic& traffic, const Layout& l) {
  std::map<TrafficAxis, double> bytes;
  for (const TrafficBeat& beat : traffic.beats)
    for (const TrafficPart& part : beat.parts) {
      const double n = part.axis == TrafficAxis::kTensor     ? l.tp
                       : part.axis == TrafficAxis::kPipeline ? l.pp * l.chunks
                                                             : l.dp;
      const double share =
          part.collective == Collective::kAllReduce ? 2 * (n - 1) / n : (n - 1) / n;
      bytes[part.axis] +=
          share * static_cast<double>(part.bytes) * static_cast<double>(part.calls * beat.times);
    }
  return bytes;
}

TEST(Traffic, IsThePlannersForEveryKindOfLayout) {
  const ModelShape model = known_model("gpt3");
  std::vector<Layout> layouts = {layout_of(8, 4, 8), layout_of(8, 1, 64), layout_of(1, 96, 1),
                                 layout_of(1, 1, 512)};
  for (const int zero : {1, 2, 3}) {
    layouts.push_back(layout_of(4, 1, 16));
    layouts.back().zero = zero;
  }
  layouts.push_back(layout_of(8, 8, 8));
  layouts.back().schedule = "interleaved";
  layouts.back().chunks = 4;
  layouts.push_back(layout_of(8, 4, 8));
  layouts.back().recompute = true;
  for (const Layout& l : layouts) {
    SCOPED_TRACE(::testing::Message() << l.tp << " x " << l.pp << " x " << l.dp << ", ZeRO "
                                      << l.zero << ", chunks " << l.chunks);
    const Layout predicted = predict(model, Cluster{}, l);
    auto bytes = sent(traffic_of({}, model, predicted), predicted);
    // What the embedding and the head add, and the tied table's gradient, are not played.
    EXPECT_NEAR(bytes[TrafficAxis::kTensor], predicted.tp_bytes, 0.03 * predicted.tp_bytes);
    EXPECT_NEAR(bytes[TrafficAxis::kData], predicted.dp_bytes, 1e-5 * predicted.dp_bytes);
    const double stages = l.pp * l.chunks, bsh = 2.0 * 2048 * 12288;
    EXPECT_NEAR(bytes[TrafficAxis::kPipeline],
                l.pp > 1 ? 2 * l.microbatches * l.chunks * bsh * (stages - 1) / stages : 0, 1);
  }
}

// 24 layers of a stage reduce twice forward and twice backward, 64 micro-batches of one sequence:
// 2 bytes x 2048 tokens x 12288.
TEST(Traffic, OfGpt3InTheUsualLayout) {
  Layout l = layout_of(8, 4, 8);
  l.blocks = 24;
  l.parameters = 0.25e9;
  const JobTraffic traffic = traffic_of({"gpt3", 8, 4, 8}, known_model("gpt3"), l);
  ASSERT_EQ(traffic.beats.size(), 2u);
  const TrafficBeat& pass = traffic.beats[0];
  EXPECT_EQ(pass.times, 64u);
  ASSERT_EQ(pass.parts.size(), 4u);
  EXPECT_EQ(pass.parts[0].calls, 48u);
  EXPECT_EQ(pass.parts[0].bytes, 50331648u);
  EXPECT_EQ(pass.parts[1].collective, Collective::kSendRecv);
  EXPECT_EQ(pass.parts[1].bytes, 50331648u);
  EXPECT_FALSE(pass.parts[1].back);
  EXPECT_TRUE(pass.parts[3].back);
  ASSERT_EQ(traffic.beats[1].parts.size(), 1u);
  EXPECT_EQ(traffic.beats[1].parts[0].calls, 40u) << "1e9 bytes in buckets of 25e6";
  EXPECT_EQ(traffic.beats[1].parts[0].bytes, 25'000'000u);
}

TEST(Traffic, PlansOfKnownModelsHaveAllTheirAxes) {
  for (const std::string& model : known_models()) {
    const JobTraffic traffic = plan_traffic({model, model == "gpt2-xl" ? 5 : 2, 2, 2});
    std::map<TrafficAxis, int> seen;
    for (const TrafficBeat& beat : traffic.beats)
      for (const TrafficPart& part : beat.parts) ++seen[part.axis];
    EXPECT_EQ(seen.size(), 3u) << model;
  }
}

TEST(Traffic, RefusesWhatCannotBe) {
  const auto why = [](const TrafficAsked& asked) -> std::string {
    try {
      plan_traffic(asked);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(why({"gpt5", 8}),
              HasSubstr("--like gpt5: the planner knows no such model; take gpt2"));
  EXPECT_THAT(why({"gpt3", 7}), HasSubstr("--tp 7: gpt3 has 96 heads"));
  EXPECT_THAT(why({"gpt3", 1, 5}), HasSubstr("--pp 5: gpt3 has 96 layers"));
  EXPECT_THAT(why({"gpt3", 1, 1, 3}), HasSubstr("--dp 3: 512 sequences per step are no multiple"));
  EXPECT_THAT(why({"gpt3", 0}), HasSubstr("--tp 0: at least 1"));
  EXPECT_THAT(why({"gpt3", -2}), HasSubstr("--tp -2: at least 1"));
  EXPECT_THAT(why({"gpt3", 1, 1, 1}), HasSubstr("sends nothing"));
  EXPECT_THAT(why({"gpt3", 96, 96, 512}), HasSubstr("4718592 ranks"));
  EXPECT_THAT(why({"gpt3", 8, 4, 8, 0}), HasSubstr("--batch 0: at least 1"));
  EXPECT_EQ(why({"gpt3", 8, 4, 3, 513}), "");
}

}  // namespace
}  // namespace weft::train
