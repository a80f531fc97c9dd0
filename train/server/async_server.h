// Trains a GPT with an asynchronous parameter server (parallel/parameter_server.h): rank 0 has the
// optimizer state and applies each worker's gradient on arrival; the other ranks are workers, each
// with all weights and its share of each step's samples. A worker more than `staleness` steps ahead
// of the slowest worker waits (stale synchronous parallel, Ho et al. 2013).
#pragma once

#include <functional>

#include "train/model/text.h"
#include "train/parallel/parameter_server.h"
#include "train/train_options.h"

namespace weft::train {

// Collective. Trains `steps` steps of options.batch samples. Each update uses the mean gradient of
// one worker's samples, and 1 / workers of the learning rate. With one worker and staleness 0 the
// losses equal a one-rank Trainer's. on_step(step, loss), on rank 0: the mean loss of the updates
// of a step. T: float or double. Returns the server's report on rank 0. Throws UsageError for
// options that an asynchronous server does not support.
template <class T>
ServerReport train_asynchronously(World& world, const TrainOptions& options, const Text& text,
                                  int steps, int staleness,
                                  const std::function<void(int, double)>& on_step);

}  // namespace weft::train
