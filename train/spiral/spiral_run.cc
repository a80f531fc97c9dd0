// run_spiral(): workers, synchronization, the curve. The network's gradient is in spiral.cc.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "topo/base/clock.h"
#include "train/spiral/spiral.h"
#include "transport/launch/failures.h"

namespace weft::train {
namespace {

void require_sane(const Communicator& comm, const SpiralOptions& o) {
  const auto refuse = [](const std::string& text) { throw Error("spiral: " + text); };
  if (o.sync != "allreduce" && o.sync != "ps" && o.sync != "ps-async")
    refuse(fmt::format("no synchronisation '{}'; there are: allreduce, ps, ps-async", o.sync));
  if (o.sync != "allreduce" && comm.size() < 2)
    refuse(fmt::format("a parameter server needs a rank of its own: use 2 ranks or more, not {}",
                       comm.size()));
  if (o.iterations < 1 || o.hidden < 1 || o.points_per_arm < 1 || o.staleness < 0 || o.arms < 2 ||
      o.arms > SpiralOptions::kMostArms)
    refuse(fmt::format(
        "{} iterations, {} hidden units, {} points per arm, staleness {}, {} arms: at "
        "least 1, 1, 1, 0, and 2 to {} arms",
        o.iterations, o.hidden, o.points_per_arm, o.staleness, o.arms, SpiralOptions::kMostArms));
  // Ranks with different options would wait for each other forever.
  const std::uint64_t mine = std::hash<std::string>()(
      fmt::format("{} {} {} {} {} {} {} {} {}", o.iterations, o.hidden, o.points_per_arm, o.arms,
                  o.staleness, o.seed, o.rate, o.regularisation, o.sync));
  std::vector<std::uint64_t> all(static_cast<std::size_t>(comm.size()));
  Communicator c = comm;
  c.all_gather(&mine, all.data(), 1, DType::kUInt64).check();
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r] != mine)
      refuse(fmt::format("rank {} was given other options than rank {}", r, comm.rank()));
}

// One worker: its samples and its gradient, whose last element is the loss.
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

class Run {
 public:
  Run(Communicator comm, const SpiralOptions& o)
      : comm_(comm),
        o_(o),
        serves_(o.sync != "allreduce"),
        workers_(comm.size() - (serves_ ? 1 : 0)),
        worker_(o, comm.rank() - (serves_ ? 1 : 0), workers_) {
    result_.workers = workers_;
    if (!serves_) comm_.set_algorithm(Collective::kAllReduce, o.algorithm);
  }

  SpiralResult all() {
    comm_.barrier().check();
    const double begin = now_s();
    if (!serves_)
      reduce();
    else if (comm_.rank() == 0)
      serve_workers();
    else
      work();
    result_.operations = net().operations();
    if (result_.curve.empty()) see({o_.iterations, loss(), net().accuracy(worker_.data)});
    result_.seconds = now_s() - begin;
    result_.weights = net().weights;
    comm_.barrier().check();
    return std::move(result_);
  }

 private:
  SpiralNet& net() { return worker_.net; }

  void reduce() {
    for (int i = 0; i < o_.iterations; ++i) {
      worker_.compute();
      const double from = now_s();
      comm_
          .all_reduce(worker_.gradient.data(), worker_.gradient.data(), worker_.gradient.size(),
                      DType::kFloat64, RedOp::kSum)
          .check();
      result_.waited_s += now_s() - from;
      apply(net(), i, 1, worker_.gradient);
    }
  }

  void work() {
    ServerClient client(comm_);
    for (int i = 0; i < o_.iterations; ++i) {
      worker_.compute();
      const double from = now_s();
      client.push_and_pull(worker_.gradient, net().weights);
      result_.waited_s += now_s() - from;
    }
  }

  // An asynchronous update uses one worker's part of the gradient, so an iteration has one update
  // per worker, each with its share of the regularization.
  void serve_workers() {
    ServerOptions options;
    options.iterations = o_.iterations;
    options.asynchronous = o_.sync == "ps-async";
    options.staleness = o_.staleness;
    const int parts = options.asynchronous ? workers_ : 1;
    SpiralOptions each = o_;
    each.regularisation /= parts;
    SpiralNet serving(each);
    serving.weights = net().weights;
    int updates = 0;
    result_.server =
        serve(comm_, options, net().size() + 1, serving.weights,
              [&](std::span<double> gradient) { apply(serving, updates++, parts, gradient); });
    net().weights = serving.weights;
  }

  // Applies update `update`, of `parts` per iteration, with the sum of gradients. If this is the
  // gradient of one worker, its loss times `parts` estimates the total.
  void apply(SpiralNet& net, int update, int parts, std::span<double> gradient) {
    const double penalty = net.add_regularisation(gradient.first(net.size()));
    const bool show = o_.report_every > 0 && update % (o_.report_every * parts) == 0;
    const double loss = (gradient.back() + penalty) * parts;
    if (show) see({update / parts, loss, net.accuracy(worker_.data)});
    net.update(gradient.first(net.size()));
    if (update + 1 == o_.iterations * parts) see({o_.iterations, loss, net.accuracy(worker_.data)});
  }

  void see(const SpiralPoint& point) {
    result_.curve.push_back(point);
    if (o_.on_point && comm_.rank() == 0) o_.on_point(point);
  }

  double loss() {
    std::vector<double> ignored(net().size());
    const std::size_t n = worker_.data.size();
    return net().add_gradient(worker_.data, 0, n, n, ignored) + net().add_regularisation(ignored);
  }

  Communicator comm_;
  const SpiralOptions& o_;
  const bool serves_;
  const int workers_;
  Worker worker_;
  SpiralResult result_;
};

}  // namespace

SpiralResult run_spiral(Communicator comm, const SpiralOptions& o) {
  require_sane(comm, o);
  return Run(comm, o).all();
}

std::string to_text(const SpiralPoint& p) {
  return fmt::format("{:>11}  {:>8.5f}  {:>6.1f} %\n", p.iteration, p.loss, 100 * p.accuracy);
}

std::string to_text(const SpiralResult& r, const SpiralOptions& o) {
  const SpiralPoint& end = r.curve.back();
  std::string text = fmt::format(
      "{} iterations, {} workers, {}{}: loss {:.5f}, accuracy {:.1f} %, {:.2f} s\n", end.iteration,
      r.workers, o.sync, o.sync == "allreduce" ? fmt::format(" ({})", o.algorithm) : "", end.loss,
      100 * end.accuracy, r.seconds);
  if (o.sync != "allreduce" && !r.server.workers.empty()) text += to_text(r.server);
  return text;
}

}  // namespace weft::train
