// The traffic between ranks in a step: the planner's bytes, call by call.
#include "train/plan/workload.h"

#include <gtest/gtest.h>

#include <map>

#include "perf/replay/formats/read.h"
#include "topo/base/status.h"

namespace weft::train {
namespace {

Layout layout_of(int tp, int pp, int dp) {
  Layout l;
  l.tp = tp;
  l.pp = pp;
  l.dp = dp;
  l.microbatches = 512 / dp;
  return l;
}

replay::JobTrace job_of(const ModelShape& model, const Layout& layout) {
  return replay::read_files({{.name = "workload.txt", .bytes = simai_workload(model, layout)}});
}

// Bytes that a rank sends per step, by group: a ring moves (n - 1) / n of a message per gather or
// reduction; the last stage sends no activations, the first no gradients.
std::map<std::string, double> sent(const replay::JobTrace& job, const Layout& l) {
  std::map<std::string, double> bytes;
  for (const replay::TraceNode& node : job.program(0)) {
    if (node.kind != replay::NodeKind::kCollective) continue;
    const std::string& group = job.groups[static_cast<std::size_t>(node.group)].name;
    const double n = group == "TP" ? l.tp : group == "PP" ? l.pp * l.chunks : l.dp;
    const double share = node.collective == Collective::kAllReduce ? 2 * (n - 1) / n : (n - 1) / n;
    bytes[group] += share * static_cast<double>(node.bytes);
  }
  return bytes;
}

TEST(Workload, IsThePlannersForEveryKindOfLayout) {
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
    const replay::JobTrace job = job_of(model, predicted);
    auto bytes = sent(job, predicted);
    // The workload leaves out embedding, head and the tied table's gradient.
    EXPECT_NEAR(bytes["TP"], predicted.tp_bytes, 0.03 * predicted.tp_bytes);
    EXPECT_NEAR(bytes["DP"], predicted.dp_bytes, 1e-5 * predicted.dp_bytes);
    const double stages = l.pp * l.chunks, bsh = 2.0 * 2048 * 12288;
    EXPECT_NEAR(bytes["PP"],
                l.pp > 1 ? 2 * l.microbatches * l.chunks * bsh * (stages - 1) / stages : 0, 1);
    double computed_s = 0;
    for (const replay::TraceNode& node : job.program(0)) computed_s += node.compute_us * 1e-6;
    EXPECT_NEAR(computed_s, predicted.compute_s, 1e-3 * predicted.compute_s);
  }
}

// 24 layers per stage reduce twice forward and twice backward, 64 micro-batches of one sequence: 2
// bytes x 2048 tokens x 12288.
TEST(Workload, OfGpt3InTheUsualLayout) {
  Layout l = layout_of(8, 4, 8);
  l.blocks = 24;
  l.parameters = 0.25e9;
  const replay::JobTrace job = job_of(known_model("gpt3"), l);
  EXPECT_EQ(job.ranks, 256);
  std::map<replay::CallKey, int> calls;
  for (const replay::TraceNode& node : job.program(0)) ++calls[replay::key_of(node)];
  std::map<std::pair<std::string, std::uint64_t>, int> seen;
  for (const auto& [key, count] : calls)
    seen[{job.groups[static_cast<std::size_t>(key.group)].name, key.bytes}] += count;
  EXPECT_EQ((seen[{"TP", 50331648}]), 64 * 24 * 4);
  EXPECT_EQ((seen[{"PP", 50331648}]), 64 * 2);
  EXPECT_EQ((seen[{"DP", 25'000'000}]), 40) << "1e9 bytes in buckets of 25e6";
}

TEST(Workload, OfOneRankIsRefused) {
  EXPECT_THROW(simai_workload(known_model("gpt2"), layout_of(1, 1, 1)), Error);
}

}  // namespace
}  // namespace weft::train
