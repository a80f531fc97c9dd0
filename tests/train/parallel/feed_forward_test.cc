// The source documents' feed-forward network on six GPUs: its losses equal those of one process,
// and each GPU sends the bytes in the figure.
// labels: sim
#include "train/spiral/feed_forward.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "support/jobs/ranks.h"

namespace weft::train::feed_forward {
namespace {

using Bytes = std::uint64_t;

constexpr auto& kWidths = FeedForwardShape::kWidths;
constexpr Index kRows = FeedForwardShape::kRows;
constexpr int kServers = FeedForwardShape::kServers;
constexpr int kMicroBatches = FeedForwardShape::kMicroBatches, kSteps = 20;

// Losses of one process with all neurons.
std::vector<double> losses_alone() {
  Axis alone;
  std::vector<std::unique_ptr<NeuronLayer>> layers;
  for (int s = 0; s < kServers; ++s) layers.push_back(std::make_unique<NeuronLayer>(s, alone));
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    for (int m = 0; m < kMicroBatches; ++m) {
      Tensor<double> x;
      for (auto& layer : layers) x = layer->forward(m, std::move(x));
      for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer)
        x = (*layer)->backward(m, std::move(x));
    }
    losses.push_back(layers.back()->take_loss());
    for (auto& layer : layers) layer->update();
  }
  return losses;
}

// Bytes per step from the GPU at `rail` of `server` to another GPU: micro-batches x message.
Bytes expected_bytes(int server, int rail, int to_server, int to_rail) {
  const Index in = kWidths[server], out = kWidths[server + 1];
  Index numbers = 0;
  if (to_server == server) {
    numbers += out / 2;             // results of this GPU, gathered by both
    if (server > 0) numbers += in;  // errors of the inputs, summed over both: 2 (2-1)/2
  } else if (to_rail == rail && to_server == server + 1) {
    numbers += out;  // all results, to the next layer
  } else if (to_rail == rail && to_server == server - 1) {
    numbers += in;  // errors, to the previous layer
  }
  return kMicroBatches * kRows * numbers * sizeof(double);
}

TEST(FeedForward, OfThreeServersAndTwoRailsAsDrawn) {
  set_operator_threads(1);
  const std::vector<double> want = losses_alone();
  EXPECT_LT(want.back(), 0.95 * want.front());
  WorldOptions options;
  options.spread = false;
  testing::run_ranks(testing::places({2, 2, 2}, 2), options, [&](World& world) {
    const int server = world.rank() / 2, rail = world.rank() % 2;
    const std::vector<FeedForwardStep> steps = train_feed_forward(world, kSteps);
    for (std::size_t s = 0; s < steps.size(); ++s) {
      std::map<Rank, Bytes> to;
      for (const auto& [where, bytes] : steps[s].sent) {
        const auto& [peer, link] = where;
        to[peer] += bytes;
        EXPECT_EQ(link.substr(0, 6), peer / 2 == server ? "shm" : fmt::format("rail {}", rail))
            << "rank " << world.rank() << " to " << peer;
      }
      for (Rank peer = 0; peer < world.size(); ++peer)
        if (peer != world.rank()) {
          EXPECT_EQ(to[peer], expected_bytes(server, rail, peer / 2, peer % 2))
              << "rank " << world.rank() << " to " << peer << ", step " << s;
        }
      if (server + 1 == kServers) {
        EXPECT_NEAR(steps[s].loss / want[s], 1, 1e-12) << s;
      }
    }
  });
}

}  // namespace
}  // namespace weft::train::feed_forward
