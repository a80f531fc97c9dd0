// The source documents' feed-forward network on six GPUs: hidden layers of 6 and 4 neurons and an
// output layer of 2, each on a server of its own and split over its two GPUs; results are gathered
// inside the server, and each GPU sends them on along its rail. The layers are written here; what
// joins them (mesh, pipeline, collectives, operators) is the trainer's.
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <mutex>

#include "coll/api/metrics.h"
#include "support/jobs/ranks.h"
#include "train/operators/operators.h"
#include "train/parallel/mesh.h"
#include "train/pipeline/runtime.h"

namespace weft::train::feed_forward {
namespace {

using Bytes = std::uint64_t;

constexpr Index kWidths[] = {8, 6, 4, 2};  // of the context vectors, and of each layer
constexpr Index kRows = 16;                // context vectors of a micro-batch
constexpr int kServers = 3, kMicroBatches = 4, kSteps = 20;
constexpr double kRate = 0.5;

// One layer, split by neurons over the GPUs of its server.
class NeuronLayer : public Stage<double> {
 public:
  NeuronLayer(int layer, Axis& server)
      : server_(server),
        first_(layer == 0),
        last_(layer + 1 == kServers),
        in_(kWidths[layer]),
        out_(kWidths[layer + 1]),
        own_(out_ / static_cast<Index>(server.size())),
        weights_(own_ * (in_ + 1)),
        gradients_(weights_.size()) {
    const Shard neurons{0, server.rank(), server.size()};
    parameters_.push_back({.logical = {fmt::format("layer{}", layer), {out_, in_ + 1}, neurons}});
    const Index before = own_ * static_cast<Index>(server.rank());
    for (Index n = 0; n < own_; ++n)
      for (Index i = 0; i <= in_; ++i)
        (i < in_ ? weights_[n * in_ + i] : bias(weights_)[n]) =
            0.6 * std::sin(static_cast<double>(1 + 3 * i + 29 * (before + n) + 50 * in_));
    parameters_[0].value = weights_.data();
    parameters_[0].gradient = gradients_.data();
  }
  std::size_t input_count() const override { return first_ ? 0 : kRows * in_; }
  std::size_t output_count() const override { return last_ ? 0 : kRows * out_; }
  std::vector<Parameter<double>>& parameters() override { return parameters_; }

  void forward(int m, const double* input, double* output) override {
    Kept& k = kept_[m];
    for (Index i = 0; i < kRows * in_; ++i)
      k.x.push_back(first_ ? std::cos(static_cast<double>(i * i + static_cast<Index>(m)))
                           : input[i]);
    k.z.resize(kRows * own_);
    linear(k.z.data(), k.x.data(), weights_.data(), bias(weights_), kRows, in_, own_);
    std::vector<double> y = k.z;
    if (!last_) gelu(y.data(), k.z.data(), y.size());
    std::vector<double> blocks(kRows * out_), whole(kRows * out_);
    std::copy(y.begin(), y.end(), blocks.begin() + me() * static_cast<long>(y.size()));
    server_.all_gather(blocks.data(), y.size());
    for (Index b = 0; b * own_ < out_; ++b)
      copy_columns(whole.data() + b * own_, out_, blocks.data() + b * y.size(), own_, kRows, own_);
    if (!last_) {
      std::copy(whole.begin(), whole.end(), output);
      return;
    }
    std::vector<Token> targets(kRows);
    for (Index r = 0; r < kRows; ++r)
      targets[r] = static_cast<Token>((r + static_cast<Index>(m)) % 3 == 0);
    double sum = 0;
    cross_entropy(whole.data(), targets.data(), 0, out_, kRows, true, 1.0 / (kRows * kMicroBatches),
                  &sum, [](auto*, Index, RedOp) {});
    loss += sum / (kRows * kMicroBatches);
    k.grad = whole;
  }
  void backward_input(int m, const double* grad_output, double* grad_input) override {
    Kept& k = kept_.at(m);
    if (!last_) k.grad.assign(grad_output, grad_output + kRows * out_);
    std::vector<double> mine(kRows * own_);
    copy_columns(mine.data(), own_, k.grad.data() + static_cast<Index>(me()) * own_, out_, kRows,
                 own_);
    if (!last_) gelu_grad(mine.data(), mine.data(), k.z.data(), mine.size());
    k.grad = mine;
    if (first_) return;
    linear_grad_input(grad_input, mine.data(), weights_.data(), kRows, in_, own_);
    server_.all_reduce(grad_input, kRows * in_);
  }
  void backward_weight(int m) override {
    const Kept& k = kept_.at(m);
    linear_grad_weight(gradients_.data(), bias(gradients_), k.grad.data(), k.x.data(), kRows, in_,
                       own_);
    kept_.erase(m);
  }
  void update() {
    for (Index i = 0; i < weights_.size(); ++i)
      weights_[i] -= kRate * std::exchange(gradients_[i], 0.0);
  }
  double loss = 0;

 private:
  struct Kept {
    std::vector<double> x, z, grad;
  };
  long me() const { return server_.rank(); }
  double* bias(std::vector<double>& of) { return of.data() + own_ * in_; }

  Axis& server_;
  bool first_, last_;
  Index in_, out_, own_;
  std::vector<double> weights_, gradients_;  // of this GPU's neurons; then their biases
  std::vector<Parameter<double>> parameters_;
  std::map<int, Kept> kept_;
};

// Losses of one process that has all neurons.
std::vector<double> losses_alone() {
  Axis alone;
  std::vector<std::unique_ptr<NeuronLayer>> layers;
  for (int s = 0; s < kServers; ++s) layers.push_back(std::make_unique<NeuronLayer>(s, alone));
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> a(kRows * kWidths[0]), b(a);
    for (int m = 0; m < kMicroBatches; ++m) {
      for (auto& layer : layers) layer->forward(m, a.data(), b.data()), std::swap(a, b);
      for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer)
        (*layer)->backward(m, a.data(), b.data()), std::swap(a, b);
    }
    losses.push_back(std::exchange(layers.back()->loss, 0.0));
    for (auto& layer : layers) layer->update();
  }
  return losses;
}

// Bytes sent so far to each peer over each link.
std::map<std::pair<Rank, std::string>, Bytes> sent(const World& world) {
  std::map<std::pair<Rank, std::string>, Bytes> bytes;
  for (const auto& t : world.metrics().traffic) bytes[{t.peer, t.link}] += t.bytes_sent;
  return bytes;
}

// Of a step on the GPU at `rail` of `server`, to every other: micro-batches x what one sends.
Bytes expected_bytes(int server, int rail, int to_server, int to_rail) {
  const Index in = kWidths[server], out = kWidths[server + 1];
  Index numbers = 0;
  if (to_server == server) {
    numbers += out / 2;             // this GPU's results, which both gather
    if (server > 0) numbers += in;  // errors of the inputs, summed over both: 2 (2-1)/2
  } else if (to_rail == rail && to_server == server + 1) {
    numbers += out;  // all results, to the next layer
  } else if (to_rail == rail && to_server == server - 1) {
    numbers += in;  // errors, to the layer before
  }
  return kMicroBatches * kRows * numbers * sizeof(double);
}

TEST(FeedForward, OfThreeServersAndTwoRailsAsDrawn) {
  set_operator_threads(1);
  const std::vector<double> want = losses_alone();
  EXPECT_LT(want.back(), 0.95 * want.front());
  std::mutex mutex;
  WorldOptions options;
  options.spread = false;
  testing::run_ranks(testing::places({2, 2, 2}, 2), options, [&](World& world) {
    Mesh mesh(world, {.tensor = 2, .pipeline = kServers, .algorithm = "ring"});
    const int server = mesh.at.pipeline, rail = mesh.at.tensor;
    NeuronLayer layer(server, mesh.tensor);
    PipelineRuntime<double> runtime(make_pipeline_schedule("1f1b", {kServers, kMicroBatches, 1}),
                                    mesh.pipeline.comm(), {&layer});
    for (int step = 0; step < kSteps; ++step) {
      auto before = sent(world);
      runtime.run();
      layer.update();
      std::map<Rank, Bytes> to;
      for (const auto& [where, bytes] : sent(world)) {
        const auto& [peer, link] = where;
        if (bytes == before[where]) continue;
        to[peer] += bytes - before[where];
        if (peer / 2 == server)
          EXPECT_EQ(link, "shm") << "rank " << world.rank() << " to " << peer;
        else
          EXPECT_EQ(link.substr(0, 6), fmt::format("rail {}", rail))
              << "rank " << world.rank() << " to " << peer;
      }
      for (Rank peer = 0; peer < world.size(); ++peer)
        if (peer != world.rank()) {
          EXPECT_EQ(to[peer], expected_bytes(server, rail, peer / 2, peer % 2))
              << "rank " << world.rank() << " to " << peer << ", step " << step;
        }
      const std::lock_guard lock(mutex);
      if (server + 1 == kServers) {
        const double loss = std::exchange(layer.loss, 0.0);
        EXPECT_NEAR(loss / want[static_cast<std::size_t>(step)], 1, 1e-12) << step;
      }
    }
  });
}

}  // namespace
}  // namespace weft::train::feed_forward
