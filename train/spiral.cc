#include "train/spiral.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>
#include <thread>

#include "topo/clock.h"

namespace weft::train {
namespace {

// Normal numbers that are the same everywhere: splitmix64 and Box-Muller.
class Normal {
 public:
  explicit Normal(std::uint64_t seed) : state_(seed) {}
  double operator()() {
    const double u = uniform(), v = uniform();
    return std::sqrt(-2 * std::log(1 - u)) * std::cos(2 * std::numbers::pi * v);
  }

 private:
  double uniform() {  // [0, 1)
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }
  std::uint64_t state_;
};

constexpr std::size_t kMostArms = 16;
constexpr std::size_t kBlock = 16;  // samples that are added one by one

}  // namespace

SpiralData make_spiral(const SpiralOptions& o) {
  SpiralData d;
  Normal normal(o.seed);
  for (int i = 0; i < o.points_per_arm; ++i)
    for (int arm = 0; arm < o.arms; ++arm) {
      const double along =
          o.points_per_arm > 1 ? static_cast<double>(i) / (o.points_per_arm - 1) : 0;
      const double angle = 4 * (arm + along) + 0.2 * normal();
      d.x.push_back(along * std::sin(angle));
      d.y.push_back(along * std::cos(angle));
      d.arm.push_back(arm);
    }
  return d;
}

// weights: from x to hidden, from y to hidden, biases of hidden; for each arm from hidden; biases.
SpiralNet::SpiralNet(const SpiralOptions& o)
    : hidden_(static_cast<std::size_t>(o.hidden)),
      arms_(static_cast<std::size_t>(o.arms)),
      rate_(o.rate),
      regularisation_(o.regularisation) {
  Normal normal(o.seed + 1000);
  for (std::size_t i = 0; i < 2 * hidden_; ++i) weights.push_back(0.01 * normal());
  weights.insert(weights.end(), hidden_, 0.0);
  for (std::size_t i = 0; i < arms_ * hidden_; ++i) weights.push_back(0.01 * normal());
  weights.insert(weights.end(), arms_, 0.0);
}

void SpiralNet::scores(const SpiralData& data, std::size_t i, double* hidden, double* out) const {
  const std::size_t n = hidden_;
  const double *wx = weights.data(), *wy = wx + n, *b = wy + n, *w2 = b + n, *b2 = w2 + arms_ * n;
  const double x = data.x[i], y = data.y[i];
  for (std::size_t j = 0; j < n; ++j) hidden[j] = std::max(0.0, wx[j] * x + wy[j] * y + b[j]);
  for (std::size_t k = 0; k < arms_; ++k) {
    double sum = 0;
    for (std::size_t j = 0; j < n; ++j) sum += w2[k * n + j] * hidden[j];
    out[k] = sum + b2[k];
  }
}

// Halves of halves: the sum of two workers with half of the samples each is then, to the bit, that
// of one worker with all.
double SpiralNet::add_gradient(const SpiralData& data, std::size_t begin, std::size_t end,
                               std::size_t total, std::span<double> gradient) const {
  if (end - begin <= kBlock) return add_block(data, begin, end, total, gradient);
  const std::size_t middle = begin + (end - begin) / 2;
  std::vector<double> second(size());
  const double loss = add_gradient(data, begin, middle, total, gradient) +
                      add_gradient(data, middle, end, total, second);
  for (std::size_t i = 0; i < second.size(); ++i) gradient[i] += second[i];
  return loss;
}

double SpiralNet::add_block(const SpiralData& data, std::size_t begin, std::size_t end,
                            std::size_t total, std::span<double> gradient) const {
  const std::size_t n = hidden_;
  std::vector<double> hidden(n), error(n);
  double out[kMostArms];
  const double* w2 = weights.data() + 3 * n;
  double *gx = gradient.data(), *gy = gx + n, *gb = gy + n, *g2 = gb + n, *gb2 = g2 + arms_ * n;
  double loss = 0;
  for (std::size_t i = begin; i < end; ++i) {
    scores(data, i, hidden.data(), out);
    const double most = *std::max_element(out, out + arms_);
    double sum = 0;
    for (std::size_t k = 0; k < arms_; ++k) sum += out[k] = std::exp(out[k] - most);
    const auto right = static_cast<std::size_t>(data.arm[i]);
    loss -= std::log(out[right] / sum) / static_cast<double>(total);
    std::fill(error.begin(), error.end(), 0.0);
    for (std::size_t k = 0; k < arms_; ++k) {
      const double e = (out[k] / sum - (k == right ? 1 : 0)) / static_cast<double>(total);
      gb2[k] += e;
      for (std::size_t j = 0; j < n; ++j) {
        g2[k * n + j] += e * hidden[j];
        error[j] += e * w2[k * n + j];
      }
    }
    for (std::size_t j = 0; j < n; ++j) {
      const double e = hidden[j] > 0 ? error[j] : 0.0;
      gx[j] += e * data.x[i];
      gy[j] += e * data.y[i];
      gb[j] += e;
    }
  }
  return loss;
}

double SpiralNet::add_regularisation(std::span<double> gradient) const {
  const std::size_t n = hidden_;
  double squares = 0;
  const auto matrix = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      gradient[i] += regularisation_ * weights[i];
      squares += weights[i] * weights[i];
    }
  };
  matrix(0, 2 * n);
  matrix(3 * n, 3 * n + arms_ * n);
  return 0.5 * regularisation_ * squares;
}

void SpiralNet::update(std::span<const double> gradient) {
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= rate_ * gradient[i];
}

double SpiralNet::accuracy(const SpiralData& data) const {
  std::vector<double> hidden(hidden_);
  double out[kMostArms];
  int right = 0;
  for (std::size_t i = 0; i < data.size(); ++i) {
    scores(data, i, hidden.data(), out);
    right += std::max_element(out, out + arms_) - out == data.arm[i];
  }
  return static_cast<double>(right) / static_cast<double>(data.size());
}

namespace {

void require_sane(const Communicator& comm, const SpiralOptions& o) {
  const auto refuse = [](const std::string& text) { throw Error("spiral: " + text); };
  if (o.sync != "allreduce" && o.sync != "ps" && o.sync != "ps-async")
    refuse(fmt::format("no synchronisation '{}'; there are: allreduce, ps, ps-async", o.sync));
  if (o.sync != "allreduce" && comm.size() < 2)
    refuse(fmt::format("a parameter server needs a rank of its own: take 2 ranks or more, not {}",
                       comm.size()));
  if (o.iterations < 1 || o.hidden < 1 || o.points_per_arm < 1 || o.staleness < 0 || o.arms < 2 ||
      static_cast<std::size_t>(o.arms) > kMostArms)
    refuse(
        fmt::format("{} iterations, {} hidden units, {} points per arm, staleness {}, {} arms: at "
                    "least 1, 1, 1, 0, and 2 to {} arms",
                    o.iterations, o.hidden, o.points_per_arm, o.staleness, o.arms, kMostArms));
  // All ranks must mean the same run, or they wait for each other in vain.
  const std::vector<double> mine{static_cast<double>(o.iterations),
                                 static_cast<double>(o.hidden),
                                 static_cast<double>(o.points_per_arm),
                                 static_cast<double>(o.arms),
                                 static_cast<double>(o.staleness),
                                 static_cast<double>(o.seed),
                                 o.rate,
                                 o.regularisation,
                                 o.sync == "allreduce" ? 0.0
                                 : o.sync == "ps"      ? 1.0
                                                       : 2.0};
  std::vector<double> all(mine.size() * static_cast<std::size_t>(comm.size()));
  Communicator c = comm;
  c.all_gather(mine.data(), all.data(), mine.size(), DType::kFloat64).check();
  for (int r = 0; r < comm.size(); ++r)
    if (!std::equal(mine.begin(), mine.end(), all.begin() + r * static_cast<long>(mine.size())))
      refuse(fmt::format("rank {} was given other options than rank {}", r, comm.rank()));
}

// One worker: its samples, its gradient (the last element is the loss).
struct Worker {
  Worker(const SpiralOptions& o, int index, int workers)
      : data(make_spiral(o)), net(o), index(index), workers(workers), gradient(net.size() + 1) {
    slow_us = index == workers - 1 ? o.straggler_us : 0;
  }
  void compute() {
    std::fill(gradient.begin(), gradient.end(), 0.0);
    const auto mine = [&](int w) {
      return data.size() * static_cast<std::size_t>(w) / static_cast<std::size_t>(workers);
    };
    gradient.back() = net.add_gradient(data, mine(index), mine(index + 1), data.size(),
                                       std::span(gradient).first(net.size()));
    if (slow_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(slow_us));
  }
  SpiralData data;
  SpiralNet net;
  int index, workers, slow_us;
  std::vector<double> gradient;
};

// Applies the sum of all workers' gradients, and remembers the curve.
// Where it is one worker's only, of `parts`, its loss stands for all.
void apply(const SpiralOptions& o, const SpiralData& data, SpiralNet& net, int iteration,
           std::span<double> gradient, int parts, SpiralResult& result) {
  const double penalty = net.add_regularisation(gradient.first(net.size()));
  const bool show = o.report_every > 0 && iteration % o.report_every == 0;
  const bool last = iteration + 1 == o.iterations;
  const double loss = (gradient.back() + penalty) * parts;
  if (show) result.curve.push_back({iteration, loss, net.accuracy(data)});
  net.update(gradient.first(net.size()));
  if (last) result.curve.push_back({o.iterations, loss, net.accuracy(data)});
}

}  // namespace

SpiralResult run_spiral(Communicator comm, const SpiralOptions& o) {
  require_sane(comm, o);
  SpiralResult result;
  const bool server = o.sync != "allreduce";
  result.workers = comm.size() - (server ? 1 : 0);
  if (!server) comm.set_algorithm(Collective::kAllReduce, o.algorithm);
  Worker worker(o, comm.rank() - (server ? 1 : 0), result.workers);
  SpiralNet& net = worker.net;
  comm.barrier().check();
  const double begin = now_s();

  if (!server) {
    for (int i = 0; i < o.iterations; ++i) {
      worker.compute();
      const double from = now_s();
      comm.all_reduce(worker.gradient.data(), worker.gradient.data(), worker.gradient.size(),
                      DType::kFloat64, RedOp::kSum)
          .check();
      result.waited_s += now_s() - from;
      apply(o, worker.data, net, i, worker.gradient, 1, result);
    }
  } else {
    ServerOptions options;
    options.iterations = o.iterations;
    options.asynchronous = o.sync == "ps-async";
    options.staleness = o.staleness;
    if (comm.rank() == 0) {
      int updates = 0;
      const int parts = options.asynchronous ? result.workers : 1;
      // An asynchronous update has one worker's part of the gradient: as many per iteration as
      // there are workers. The regularisation is spread over them in the same way.
      SpiralOptions each = o;
      if (options.asynchronous) {
        each.iterations = o.iterations * result.workers;
        each.regularisation = o.regularisation / result.workers;
      }
      SpiralNet serving(each);
      serving.weights = net.weights;
      result.server =
          serve(comm, options, net.size() + 1, serving.weights, [&](std::span<double> gradient) {
            apply(each, worker.data, serving, updates++, gradient, parts, result);
          });
      net.weights = serving.weights;
    } else {
      ServerClient client(comm);
      for (int i = 0; i < o.iterations; ++i) {
        worker.compute();
        const double from = now_s();
        client.push_and_pull(worker.gradient, net.weights);
        result.waited_s += now_s() - from;
      }
      result.curve.push_back({o.iterations, 0, net.accuracy(worker.data)});
    }
  }
  result.seconds = now_s() - begin;
  result.weights = net.weights;
  comm.barrier().check();
  return result;
}

std::string to_text(const SpiralResult& r, const SpiralOptions& o) {
  std::string text;
  if (r.curve.size() > 1) text += "# iteration      loss  accuracy\n";
  for (const SpiralPoint& p : r.curve)
    if (&p != &r.curve.back())
      text += fmt::format("{:>11}  {:>8.5f}  {:>6.1f} %\n", p.iteration, p.loss, 100 * p.accuracy);
  const SpiralPoint& end = r.curve.back();
  text += fmt::format("{} iterations, {} workers, {}{}: loss {:.5f}, accuracy {:.1f} %, {:.2f} s\n",
                      o.iterations, r.workers, o.sync,
                      o.sync == "allreduce" ? fmt::format(" ({})", o.algorithm) : "", end.loss,
                      100 * end.accuracy, r.seconds);
  if (o.sync != "allreduce") text += to_text(r.server);
  return text;
}

}  // namespace weft::train
