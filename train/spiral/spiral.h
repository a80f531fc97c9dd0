// The spiral: three arms of points in the plane, and a network of one hidden layer that learns to
// tell them apart, on one rank or on many. Small enough to see every synchronisation at work.
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
  int iteration;    // that are done, for all workers
  double loss;      // with the regularisation, before the iteration's update
  double accuracy;  // of all points, 0 .. 1
};

struct SpiralOptions {
  static constexpr int kMostArms = 16;
  int iterations = 10000;
  // allreduce: every rank is a worker. ps: rank 0 keeps the weights, the others are workers, all
  // wait for all. ps-async: they do not wait, but for those that are `staleness` behind.
  std::string sync = "allreduce";
  std::string algorithm = "auto";  // of the all-reduce
  int staleness = 4;
  int hidden = 100, points_per_arm = 100, arms = 3;
  double rate = 0.3, regularisation = 1e-3;
  std::uint64_t seed = 24;  // of the golden run: 97 % at 5000 iterations, 98 % at 10,000
  int straggler_us = 0;     // the last worker takes so much longer per iteration
  int report_every = 0;     // iterations between points of the curve; 0: only the end
  // Folder of checkpoints (checkpoint.h), of one tensor, which any number of workers and any
  // synchronisation goes on from; empty: none. Workers wait for each other where one is written.
  std::string save = {};
  int save_every = 1000, keep = 2;
  bool resume = false;  // from the newest one in `save`, where there is one
  // Called on every rank before each iteration, with its number from 1.
  std::function<void(int)> before = {};
  // Called on rank 0 with each point of the curve, as it comes.
  std::function<void(const SpiralPoint&)> on_point = {};
};

struct SpiralResult {
  std::vector<double> weights;     // W1, b1, W2, b2; the same on every rank but with ps-async
  std::vector<SpiralPoint> curve;  // the last one is the end
  int workers = 1;
  int first = 0;                      // iterations that were done when it began
  std::string path;                   // of the checkpoint that it went on from
  std::vector<std::string> left_out;  // newer ones that were damaged (on rank 0)
  std::vector<std::string> differs;   // what its run had otherwise, where that counts
  double seconds = 0;
  double waited_s = 0;  // of this rank, in synchronisation
  ServerReport server;  // on rank 0, with a parameter server
};

// Trains over all ranks of comm; each sample belongs to one worker, and gradients are the sum over
// all samples divided by their number, whatever the number of workers. A collective call. Throws
// Error for options that cannot be, and when comm fails.
SpiralResult run_spiral(Communicator comm, const SpiralOptions& options);

// What a person wants to know of a point of the curve (one line), and of the end.
std::string to_text(const SpiralPoint& point);
std::string to_text(const SpiralResult& result, const SpiralOptions& options);

// The points and the network, for those who look closer.
struct SpiralData {
  std::vector<double> x, y;
  std::vector<int> arm;
  std::size_t size() const { return arm.size(); }
};
// One point of each arm after the other. Arm k turns from angle 4 k to 4 (k + 1) with noise of 0.2,
// while its radius grows from 0 to 1.
SpiralData make_spiral(const SpiralOptions& options);

class SpiralNet {
 public:
  explicit SpiralNet(const SpiralOptions& options);  // weights: 0.01 times normal, biases 0
  std::size_t size() const { return weights.size(); }
  // Adds the gradient of the mean cross-entropy over `total` samples, for those from begin to end,
  // to a gradient that is zero; returns their part of the loss.
  double add_gradient(const SpiralData& data, std::size_t begin, std::size_t end, std::size_t total,
                      std::span<double> gradient) const;
  // Adds that of the regularisation, and returns its loss: half of it times the squares of the
  // matrices.
  double add_regularisation(std::span<double> gradient) const;
  void update(std::span<const double> gradient);
  double accuracy(const SpiralData& data) const;
  std::vector<double> weights;

 private:
  double add_block(const SpiralData& data, std::size_t begin, std::size_t end, std::size_t total,
                   std::span<double> gradient) const;
  void scores(const SpiralData& data, std::size_t i, double* hidden, double* out) const;
  std::size_t hidden_, arms_;
  double rate_, regularisation_;
};

}  // namespace weft::train
