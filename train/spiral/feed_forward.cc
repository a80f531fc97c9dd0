// The layer's passes, the run, and its traffic. Does not depend on GPT.
#include "train/spiral/feed_forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "coll/api/metrics.h"
#include "coll/runtime/internals.h"
#include "train/mesh/mesh.h"
#include "train/pipeline/runtime.h"

namespace weft::train {
namespace {

constexpr int kServers = FeedForwardShape::kServers, kRails = FeedForwardShape::kRails;
constexpr int kMicroBatches = FeedForwardShape::kMicroBatches;

// Returns the name of a rank in the figure: rail A or B, and the number of its server.
std::string gpu_name(Rank rank) {
  return fmt::format("{}{}", rank % kRails == 0 ? 'A' : 'B', rank / kRails + 1);
}

std::string what_is_sent(Rank from, Rank to) {
  if (from / kRails == to / kRails)
    return from / kRails == 0 ? "results, which both gather"
                              : "results, which both gather; errors of the inputs, summed";
  return from < to ? "results, to the next layer" : "errors, to the layer before";
}

}  // namespace

NeuronLayer::NeuronLayer(int layer, Axis& server)
    : server_(server),
      first_(layer == 0),
      last_(layer + 1 == kServers),
      in_(FeedForwardShape::kWidths[layer]),
      out_(FeedForwardShape::kWidths[layer + 1]),
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

Tensor<double> NeuronLayer::forward(int m, Tensor<double> input) {
  Kept& k = kept_[m];
  if (first_) {
    input = Tensor<double>(kRows * in_, Use::kActivations);
    for (Index i = 0; i < kRows * in_; ++i)
      input[i] = std::cos(static_cast<double>(i * i + static_cast<Index>(m)));
  }
  k.x = std::move(input);
  k.z = Tensor<double>(kRows * own_, Use::kWeightedSums);
  linear(k.z.data(), k.x.data(), weights_.data(), bias(weights_), kRows, in_, own_);
  // All-gathers the results of the server's GPUs, a block per GPU.
  Tensor<double> blocks(kRows * out_, Use::kActivations), whole(kRows * out_, Use::kActivations);
  double* mine = blocks.data() + me() * k.z.count();
  if (last_)
    copy(mine, k.z.data(), k.z.count());
  else
    gelu(mine, k.z.data(), k.z.count());
  server_.all_gather(blocks.data(), k.z.count());
  for (Index b = 0; b * own_ < out_; ++b)
    copy_columns(whole.data() + b * own_, out_, blocks.data() + b * k.z.count(), own_, kRows, own_);
  if (!last_) return whole;
  std::vector<Token> targets(kRows);
  for (Index r = 0; r < kRows; ++r)
    targets[r] = static_cast<Token>((r + static_cast<Index>(m)) % 3 == 0);
  double sum = 0;
  cross_entropy(whole.data(), targets.data(), 0, out_, kRows, true, 1.0 / (kRows * kMicroBatches),
                &sum, [](auto*, Index, RedOp) {});
  loss_ += sum / (kRows * kMicroBatches);
  k.grad = std::move(whole);
  return {};
}

Tensor<double> NeuronLayer::backward_input(int m, Tensor<double> grad_output) {
  Kept& k = kept_.at(m);
  const Tensor<double> whole = std::move(last_ ? k.grad : grad_output);
  k.grad = Tensor<double>(kRows * own_, Use::kErrors);
  copy_columns(k.grad.data(), own_, whole.data() + me() * own_, out_, kRows, own_);
  if (!last_) gelu_grad(k.grad.data(), k.grad.data(), k.z.data(), k.z.count());
  if (first_) return {};
  Tensor<double> grad_input(kRows * in_, Use::kErrors);
  linear_grad_input(grad_input.data(), k.grad.data(), weights_.data(), kRows, in_, own_);
  server_.all_reduce(grad_input.data(), grad_input.count());
  return grad_input;
}

void NeuronLayer::backward_weight(int m) {
  const Kept& k = kept_.at(m);
  linear_grad_weight(gradients_.data(), bias(gradients_), k.grad.data(), k.x.data(), kRows, in_,
                     own_);
  kept_.erase(m);
}

void NeuronLayer::update() {
  for (Index i = 0; i < weights_.size(); ++i)
    weights_[i] -= FeedForwardShape::kRate * std::exchange(gradients_[i], 0.0);
}

double NeuronLayer::take_loss() { return std::exchange(loss_, 0.0); }

std::vector<FeedForwardStep> train_feed_forward(World& world, int steps) {
  const Topology& t = world.topology();
  if (world.size() != kServers * kRails || t.nhosts() != kServers || t.nrails() != kRails)
    throw UsageError(
        fmt::format("--model ffn: {} ranks on {} hosts of {} rails, but the network is drawn on {} "
                    "servers of {} GPUs and rails; leave -N, --hosts and --rails out",
                    world.size(), t.nhosts(), t.nrails(), kServers, kRails));
  Mesh mesh(world, {.tensor = kRails, .pipeline = kServers, .algorithm = "ring"});
  NeuronLayer layer(mesh.at.pipeline, mesh.tensor);
  PipelineRuntime<double> runtime(make_pipeline_schedule("1f1b", {kServers, kMicroBatches, 1}),
                                  mesh.pipeline.comm(), {&layer});
  const auto add_sent = [&](FeedForwardStep& step, std::uint64_t sign) {
    for (const auto& t : world.metrics().traffic)
      step.sent[{t.peer, t.link}] += sign * t.bytes_sent;
  };
  std::vector<FeedForwardStep> all(static_cast<std::size_t>(steps));
  for (FeedForwardStep& step : all) {
    add_sent(step, ~std::uint64_t{0});  // minus, modulo 2^64
    runtime.run();
    layer.update();
    add_sent(step, 1);
    std::erase_if(step.sent, [](const auto& entry) { return entry.second == 0; });
    step.loss = layer.take_loss();
  }
  return all;
}

void show_feed_forward(World& world, int steps) {
  const std::vector<FeedForwardStep> all = train_feed_forward(world, steps);
  std::string mine;
  for (const auto& [where, bytes] : all.back().sent)
    mine += fmt::format("{:>4}  {:>4}  {:<12}  {:>6}  {}\n", gpu_name(world.rank()),
                        gpu_name(where.first), where.second, bytes,
                        what_is_sent(world.rank(), where.first));
  if (world.rank() + kRails == world.size()) {  // GPU A3 computes the loss
    mine += "# step      loss\n";
    for (int s = 0; s < steps; ++s)
      if (s % std::max(1, steps / 4) == 0 || s + 1 == steps)
        mine += fmt::format("{:>6}  {:>8.5f}\n", s + 1, all[static_cast<std::size_t>(s)].loss);
  }
  const std::vector<std::string> texts = job_of(world).all_gather(mine);
  if (world.rank() != 0) return;
  std::string sent, losses;
  for (const std::string& text : texts) {
    const auto at = std::min(text.find('#'), text.size());
    sent += text.substr(0, at);
    losses += text.substr(at);
  }
  fmt::print(
      "# layers of 6, 4 and 2 neurons on servers 1, 2 and 3, half of each on rails A and B;\n"
      "# {} micro-batches of {} context vectors, fp64\n{}"
      "# bytes of a step\nfrom    to  over           bytes\n{}",
      kMicroBatches, FeedForwardShape::kRows, losses, sent);
}

}  // namespace weft::train
