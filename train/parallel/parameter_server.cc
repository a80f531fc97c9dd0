// The server's loop, a worker's push and pull, the report. Does not depend on model and optimizer.
#include "train/parallel/parameter_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "topo/base/clock.h"

namespace weft::train {
namespace {

// Timeout of the server's wait when no worker has sent anything.
constexpr std::chrono::microseconds kNap{100};

// Workers are numbered 0 .. n - 1; the rank of worker w is w + 1.
class Server {
 public:
  Server(Communicator comm, const ServerOptions& options, std::size_t gradient_count,
         std::vector<double>& weights, const std::function<void(std::span<double>)>& apply)
      : comm_(std::move(comm)), options_(options), weights_(weights), apply_(apply) {
    workers_.resize(static_cast<std::size_t>(comm_.size() - 1));
    report_.workers.resize(workers_.size());
    for (Worker& w : workers_) {
      w.gradient.resize(gradient_count);
      w.answered_s = now_s();
      listen(w);
    }
    sum_.resize(gradient_count);
  }

  ServerReport run() {
    while (std::any_of(workers_.begin(), workers_.end(), [&](const Worker& w) {
      return w.clock < options_.iterations || w.unanswered;
    })) {
      bool any = false;
      for (Worker& w : workers_) any = take(w) || any;
      if (options_.asynchronous)
        answer_those_in_step();
      else
        end_iteration();
      if (!any) nap();
    }
    for (Worker& w : workers_) w.sending.wait().check();
    return std::move(report_);
  }

 private:
  struct Worker {
    std::vector<double> gradient;
    std::vector<double> weights;  // being sent
    Request receiving, sending;
    bool listening = false;
    bool unanswered = false;    // its gradient has arrived, the weights are not yet sent
    int clock = 0;              // number of gradients received
    std::uint64_t version = 0;  // number of updates in its weights
    double answered_s = 0, came_s = 0;
  };
  Rank rank_of(const Worker& w) const { return static_cast<Rank>(&w - workers_.data()) + 1; }
  ServerReport::PerWorker& report_of(const Worker& w) {
    return report_.workers[static_cast<std::size_t>(&w - workers_.data())];
  }

  void listen(Worker& w) {
    if (w.clock == options_.iterations) return;
    w.receiving =
        comm_.recv_async(w.gradient.data(), w.gradient.size(), DType::kFloat64, rank_of(w));
    w.listening = true;
  }

  bool take(Worker& w) {
    if (!w.listening || !w.receiving.test()) return false;
    w.receiving.wait().check();
    w.listening = false;
    w.unanswered = true;
    ++w.clock;
    w.came_s = now_s();
    report_of(w).worked_s += w.came_s - w.answered_s;
    last_ = &w;
    if (!options_.asynchronous) return true;
    count_staleness(w);
    report_.most_ahead = std::max(report_.most_ahead, w.clock - slowest());
    apply_(w.gradient);
    ++report_.updates;
    return true;
  }

  void count_staleness(const Worker& w) {
    const auto stale = static_cast<std::size_t>(report_.updates - w.version);
    if (report_.staleness.size() <= stale) report_.staleness.resize(stale + 1);
    ++report_.staleness[stale];
  }

  int slowest() const {
    int least = options_.iterations;
    for (const Worker& w : workers_) least = std::min(least, w.clock);
    return least;
  }

  void answer_those_in_step() {
    const int least = slowest();
    for (Worker& w : workers_)
      if (w.unanswered && w.clock <= least + options_.staleness) answer(w);
  }

  void end_iteration() {
    if (!std::all_of(workers_.begin(), workers_.end(),
                     [](const Worker& w) { return w.unanswered; }))
      return;
    std::fill(sum_.begin(), sum_.end(), 0.0);
    for (const Worker& w : workers_) {
      for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += w.gradient[i];
      count_staleness(w);
    }
    ++report_of(*last_).last;
    apply_(sum_);
    ++report_.updates;
    for (Worker& w : workers_) answer(w);
  }

  void answer(Worker& w) {
    w.sending.wait_for(std::chrono::nanoseconds(0));
    if (!w.weights.empty()) w.sending.wait().check();  // the previous send completed long ago
    w.weights = weights_;
    listen(w);
    w.sending = comm_.send_async(w.weights.data(), w.weights.size(), DType::kFloat64, rank_of(w));
    w.unanswered = false;
    w.version = report_.updates;
    w.answered_s = now_s();
    report_of(w).waited_s += w.answered_s - w.came_s;
  }

  // Waits up to kNap for one worker; the wait progresses all workers' messages.
  void nap() {
    for (Worker& w : workers_)
      if (w.listening) {
        w.receiving.wait_for(kNap);
        return;
      }
  }

  Communicator comm_;
  ServerOptions options_;
  std::vector<double>& weights_;
  const std::function<void(std::span<double>)>& apply_;
  std::vector<Worker> workers_;
  std::vector<double> sum_;
  const Worker* last_ = nullptr;
  ServerReport report_;
};

}  // namespace

ServerReport serve(Communicator comm, const ServerOptions& options, std::size_t gradient_count,
                   std::vector<double>& weights,
                   const std::function<void(std::span<double>)>& apply) {
  return Server(std::move(comm), options, gradient_count, weights, apply).run();
}

void ServerClient::push_and_pull(const std::vector<double>& gradient,
                                 std::vector<double>& weights) {
  const Message both[] = {Message::to(0, gradient.data(), gradient.size(), DType::kFloat64),
                          Message::from(0, weights.data(), weights.size(), DType::kFloat64)};
  comm_.exchange(both).check();
}

std::string to_text(const ServerReport& r) {
  std::string text = fmt::format("server: {} updates", r.updates);
  if (r.most_ahead > 0) text += fmt::format(", workers at most {} iterations apart", r.most_ahead);
  text += "\n";
  std::uint64_t all = 0;
  for (const auto n : r.staleness) all += n;
  for (std::size_t k = 0; k < r.staleness.size(); ++k)
    if (r.staleness[k] > 0) {
      const double share = static_cast<double>(r.staleness[k]) / static_cast<double>(all);
      text += fmt::format("staleness {:>3}  {:>8}  {:>5.1f} %  {}\n", k, r.staleness[k],
                          100 * share, std::string(static_cast<std::size_t>(40 * share), '#'));
    }
  for (std::size_t w = 0; w < r.workers.size(); ++w)
    text += fmt::format(
        "worker {} (rank {}): worked {:.2f} s, waited for others {:.2f} s{}\n", w, w + 1,
        r.workers[w].worked_s, r.workers[w].waited_s,
        r.workers[w].last > 0 ? fmt::format(", came last {} times", r.workers[w].last) : "");
  return text;
}

}  // namespace weft::train
