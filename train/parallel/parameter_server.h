// A parameter server: rank 0 of a communicator keeps the weights; workers, the other ranks, push
// gradients and pull weights. The server does not depend on a model.
//
// Synchronous: when every worker's gradient has arrived, the server adds them in the order of
// ranks, applies the sum once and sends the weights to all. Asynchronous: the server applies each
// gradient on arrival and sends its worker the current weights; a worker more than `staleness`
// iterations ahead of the slowest worker waits for the weights (stale synchronous parallel, Ho et
// al. 2013).
//
// Between a pull and the next push of a worker, each other worker pushes at most 2 * staleness + 1
// times: ServerReport::staleness is at most (workers - 1) times that number.
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
  int iterations = 1;  // iterations of every worker
  bool asynchronous = false;
  int staleness = 0;
};

// Statistics of the server.
struct ServerReport {
  std::uint64_t updates = 0;
  // staleness[k]: number of gradients that were applied with weights k updates old.
  std::vector<std::uint64_t> staleness;
  int most_ahead = 0;  // maximum number of iterations between the fastest and the slowest worker
  struct PerWorker {
    // Number of iterations in which this worker's gradient arrived last (synchronous).
    std::uint64_t last = 0;
    double waited_s = 0;  // from each gradient's arrival to the server's answer
    double worked_s = 0;  // from each answer to the worker's next gradient
  };
  std::vector<PerWorker> workers;
};

// Runs the server, on rank 0. Each push has gradient_count elements; `apply` updates `weights` with
// the gradient, which it may overwrite. Returns when every worker has pushed `iterations` times.
// Throws Error if the communicator fails.
ServerReport serve(Communicator comm, const ServerOptions& options, std::size_t gradient_count,
                   std::vector<double>& weights,
                   const std::function<void(std::span<double> gradient)>& apply);

// The client of a worker, on the other ranks.
class ServerClient {
 public:
  explicit ServerClient(Communicator comm) : comm_(std::move(comm)) {}
  // Sends the gradient and receives the server's weights. Blocks.
  void push_and_pull(const std::vector<double>& gradient, std::vector<double>& weights);

 private:
  Communicator comm_;
};

// Formats a histogram of staleness, and the waiting times of workers.
std::string to_text(const ServerReport& report);

}  // namespace weft::train
