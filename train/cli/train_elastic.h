// --elastic without a restart: after a rank died, the whole replicas that are left go on in a
// smaller World, each rank with its own weights. This code knows no tensors.
#pragma once

#include <memory>

#include "train/train_options.h"

namespace weft {

// Returns whether each replica has all of the state, in memory that survives a failed step: only
// then can others go on without one.
bool can_lose_replicas(const train::TrainOptions& options, bool on_device);

struct Survivors {
  std::unique_ptr<World> world;  // of the ranks that go on; null: this rank is not one of them
  int replicas = 0;
  // Of the last step that a survivor has done, which some may have to complete.
  int step = 0;
  double loss = 0, norm = 0;
};

// Each rank that is left calls this after the failure of `world`, with the last step that it has
// done. Returns the World of as many whole replicas as the batch divides by, in their old order.
// Throws Error where there is none.
Survivors go_on_without_lost(World& world, const train::TrainOptions& options, int step,
                             double loss, double norm);

}  // namespace weft
