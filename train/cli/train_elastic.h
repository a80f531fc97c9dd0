// --elastic without a restart: after ranks died, those that are left go on in a smaller World; with
// --restart, new processes join at a checkpoint. This code knows no tensors.
#pragma once

#include <memory>
#include <string>

#include "train/cli/train_flags.h"

namespace weft {

struct Elasticity {
  std::string folder;      // --save, which all ranks and those that wait see
  int replicas = 1;        // as many as at first
  bool gains = false;      // ranks wait in FOLDER/waiting to join
  WorldOptions options{};  // of a new World
};

Elasticity elasticity(const TrainFlags& flags);

// Returns the most replicas, at most `most`, by which the batch and groups that share a state
// divide; 0: none.
int replicas_that_fit(const train::TrainOptions& options, int most);

struct Regrouped {
  std::unique_ptr<World> world;  // null: this rank is not needed, or nothing changes
  // Each rank's part of the state, after step `step`, is that before; a rank that has not done that
  // step completes it. Else all ranks load the newest checkpoint.
  bool in_memory = false;
  int step = 0;
  double loss = 0, norm = 0;
};

// Each rank that is left calls this after the failure of `world`, with the last step that it has
// done. Whole replicas go on in their old order; where none is whole, ranks that are left and ranks
// that wait make new ones. Throws Error where these are too few.
Regrouped go_on_without_lost(World& world, const train::TrainOptions& options,
                             const Elasticity& how, int step, double loss, double norm);

// All ranks call this after a checkpoint. Returns the World with more replicas, where enough ranks
// wait; null: the run goes on in `world`.
std::unique_ptr<World> take_in(World& world, const train::TrainOptions& options,
                               const Elasticity& how);

// Waits until a job that saves in the folder takes this process in. Returns null where the job ends
// without it. Throws Error where the job's rank 0 is gone for longer than the timeout.
std::unique_ptr<World> wait_to_join(const Elasticity& how);

}  // namespace weft
