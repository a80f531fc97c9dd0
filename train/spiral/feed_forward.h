// The source documents' feed-forward network on six GPUs (their figure 8-19): layers of 6, 4 and 2
// neurons, each sharded over the two GPUs of one server. An all-gather inside the server collects
// results, and each GPU sends them along its rail. Only the layer is implemented here; mesh,
// pipeline, collectives and operators are the trainer's.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coll/api/communicator.h"
#include "train/mesh/axis.h"
#include "train/model/stage.h"
#include "train/operators/operators.h"

namespace weft::train {

struct FeedForwardShape {
  static constexpr int kServers = 3, kRails = 2;
  static constexpr Index kWidths[] = {8, 6, 4, 2};  // width of a context vector, and of each layer
  static constexpr Index kRows = 16;                // context vectors per micro-batch
  static constexpr int kMicroBatches = 4;
  static constexpr double kRate = 0.5;
};

// One layer, sharded by neurons over the GPUs of its server. Its inputs, targets and initial
// weights are fixed.
class NeuronLayer : public Stage<double> {
 public:
  NeuronLayer(int layer, Axis& server);  // `server` must outlive the layer

  std::size_t input_count() const override { return first_ ? 0 : kRows * in_; }
  std::size_t output_count() const override { return last_ ? 0 : kRows * out_; }
  std::vector<Parameter<double>>& parameters() override { return parameters_; }
  Tensor<double> forward(int m, Tensor<double> input) override;
  Tensor<double> backward_input(int m, Tensor<double> grad_output) override;
  void backward_weight(int m) override;
  void update();       // SGD
  double take_loss();  // last layer: mean loss since the previous call

 private:
  static constexpr Index kRows = FeedForwardShape::kRows;
  struct Kept {
    Tensor<double> x, z, grad;
  };
  Index me() const { return static_cast<Index>(server_.rank()); }
  double* bias(std::vector<double>& of) { return of.data() + own_ * in_; }

  Axis& server_;
  bool first_, last_;
  Index in_, out_, own_;
  std::vector<double> weights_, gradients_;  // weights of this GPU's neurons, then their biases
  std::vector<Parameter<double>> parameters_;
  std::map<int, Kept> kept_;
  double loss_ = 0;
};

struct FeedForwardStep {
  // Loss, on the GPUs of the last server.
  double loss = 0;
  std::map<std::pair<Rank, std::string>, std::uint64_t> sent;  // bytes sent, by peer and link
};

// Collective, for six ranks on three hosts with two rails; throws UsageError for other jobs. Trains
// the network and returns this rank's steps.
std::vector<FeedForwardStep> train_feed_forward(World& world, int steps);

// Trains, and prints on rank 0 the losses and the bytes that each GPU sent in a step, by peer and
// link, with the figure's names: GPU A2 is on server 2 and rail A.
void show_feed_forward(World& world, int steps);

}  // namespace weft::train
