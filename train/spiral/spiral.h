// The spiral: three arms of points in the plane, and a network with one hidden layer that learns to
// classify them, on one rank or many. Small enough to watch each kind of synchronization.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "train/parallel/parameter_server.h"

namespace weft::train {

struct SpiralPoint {
  int iteration;    // iterations that all workers have completed
  double loss;      // loss with regularisation, before the iteration's update
  double accuracy;  // share of all points, 0 .. 1
};

struct SpiralOptions {
  static constexpr int kMostArms = 16;
  int iterations = 10000;
  // allreduce: every rank is a worker. ps: rank 0 is a synchronous parameter server, the other
  // ranks are workers. ps-async: an asynchronous server, with `staleness`.
  std::string sync = "allreduce";
  std::string algorithm = "auto";  // algorithm of the all-reduce
  int staleness = 4;
  int hidden = 100, points_per_arm = 100, arms = 3;
  double rate = 0.3, regularisation = 1e-3;
  std::uint64_t seed = 24;  // seed of the golden run: 97 % at 5000 iterations, 98 % at 10,000
  int straggler_us = 0;     // delay of the last worker per iteration
  int report_every = 0;     // iterations between points of the curve; 0: only the last
  // Rank 0 calls this with each point of the curve as soon as it is computed.
  std::function<void(const SpiralPoint&)> on_point = {};
};

struct SpiralResult {
  std::vector<double> weights;     // W1, b1, W2, b2; equal on all ranks except with ps-async
  std::vector<SpiralPoint> curve;  // the last point is the end
  int workers = 1;
  double seconds = 0;
  std::uint64_t operations = 0;  // multiply-adds of this rank's forward and backward passes
  double waited_s = 0;           // this rank's time in synchronization
  ServerReport server;           // report of the parameter server, on rank 0
};

// Collective. Trains over all ranks of comm. Each sample belongs to one worker, and the gradient is
// the mean over all samples for any number of workers. Throws Error for invalid options, and if
// comm fails.
SpiralResult run_spiral(Communicator comm, const SpiralOptions& options);

// Formats a point of the curve, one line.
std::string to_text(const SpiralPoint& point);
// Formats the result of a run.
std::string to_text(const SpiralResult& result, const SpiralOptions& options);

// The samples: coordinates and arm of each point.
struct SpiralData {
  std::vector<double> x, y;
  std::vector<int> arm;
  std::size_t size() const { return arm.size(); }
};
// Generates the points, one of each arm in turn. Arm k turns from angle 4 k to 4 (k + 1), with
// noise of deviation 0.2, while its radius grows from 0 to 1.
SpiralData make_spiral(const SpiralOptions& options);

class SpiralNet {
 public:
  explicit SpiralNet(const SpiralOptions& options);  // weights 0.01 times normal, biases 0
  std::size_t size() const { return weights.size(); }
  // Adds to `gradient`, which is zero, the share of samples [begin, end) in the gradient of the
  // mean cross-entropy over `total` samples; returns their share of the loss.
  double add_gradient(const SpiralData& data, std::size_t begin, std::size_t end, std::size_t total,
                      std::span<double> gradient) const;
  // Adds the gradient of the L2 regularization and returns its loss: half its factor times the sum
  // of squares of the weight matrices.
  double add_regularisation(std::span<double> gradient) const;
  void update(std::span<const double> gradient);
  double accuracy(const SpiralData& data) const;
  std::vector<double> weights;
  // Multiply-adds of add_gradient() so far.
  std::uint64_t operations() const { return operations_; }

 private:
  double add_block(const SpiralData& data, std::size_t begin, std::size_t end, std::size_t total,
                   std::span<double> gradient) const;
  void scores(const SpiralData& data, std::size_t i, double* hidden, double* out) const;
  std::size_t hidden_, arms_;
  double rate_, regularisation_;
  mutable std::uint64_t operations_ = 0;
};

}  // namespace weft::train
