// A parameter server: rank 0 of a communicator keeps the weights; workers, the other ranks, push
// gradients and pull weights. Knows no model.
//
// Synchronous: an iteration ends when every worker's gradient is there; they are added in the order
// of ranks and applied once, and all get the result. Asynchronous: a gradient is applied as it
// comes, and its worker gets the weights as they are then, unless it is more than `staleness`
// iterations ahead of the slowest: then the answer waits (stale synchronous parallel, Ho et al.
// 2013).
//
// Between a pull and the next push of a worker, each of the others may have pushed at most
// 2 * staleness + 1 times: the bound of ServerReport::staleness is (workers - 1) times that.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coll/api/communicator.h"

namespace weft::train {

struct ServerOptions {
  int iterations = 1;  // of every worker
  bool asynchronous = false;
  int staleness = 0;
};

// What the server saw.
struct ServerReport {
  std::uint64_t updates = 0;
  // staleness[k]: gradients that were computed with weights that k updates had changed since.
  std::vector<std::uint64_t> staleness;
  int most_ahead = 0;  // iterations between the fastest and the slowest worker, at most
  struct PerWorker {
    std::uint64_t last = 0;  // iterations in which it came last (synchronous)
    double waited_s = 0;     // its gradient was there, its answer was not: it waited for others
    double worked_s = 0;     // from its answer to its next gradient
  };
  std::vector<PerWorker> workers;

  ServerReport& operator+=(const ServerReport& later);  // of the same workers
};

// On rank 0. gradient_count elements come with each push; `apply` takes the gradient (it may use it
// as scratch) and changes `weights`. Returns when every worker has pushed `iterations` times.
// Throws Error when the communicator fails.
ServerReport serve(Communicator comm, const ServerOptions& options, std::size_t gradient_count,
                   std::vector<double>& weights,
                   const std::function<void(std::span<double> gradient)>& apply);

// On the others.
class ServerClient {
 public:
  explicit ServerClient(Communicator comm) : comm_(std::move(comm)) {}
  // Sends the gradient and waits for the weights.
  void push_and_pull(const std::vector<double>& gradient, std::vector<double>& weights);

 private:
  Communicator comm_;
};

// Histogram of staleness, and who waited for whom.
std::string to_text(const ServerReport& report);

}  // namespace weft::train
