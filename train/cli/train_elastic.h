// --elastic without a restart: after ranks died, the remaining ranks continue in a smaller World;
// with --restart, new processes join at a checkpoint. Does not depend on tensors.
#pragma once

#include <memory>
#include <string>

#include "train/cli/train_flags.h"

namespace weft {

struct Elasticity {
  std::string folder;      // folder of --save, shared by all ranks and waiting processes
  int replicas = 1;        // initial number of replicas
  bool gains = false;      // processes may wait in FOLDER/waiting to join
  WorldOptions options{};  // options of new Worlds
};

Elasticity elasticity(const TrainFlags& flags);

// Returns the largest number of replicas, at most `most`, that divides the batch and is a multiple
// of the shard group; 0: none.
int replicas_that_fit(const train::TrainOptions& options, int most);

struct Regrouped {
  std::unique_ptr<World> world;  // null: this rank is not needed, or nothing changes
  // The state in memory is valid: each rank keeps its part after step `step`, and a rank that has
  // not completed this step completes it. Otherwise all ranks load the newest checkpoint.
  bool in_memory = false;
  int step = 0;
  double loss = 0, norm = 0;
};

// Every remaining rank calls this after `world` failed, with the last step that it has completed.
// Complete replicas continue in their previous order; if no replica is complete, the remaining
// ranks and waiting processes form new replicas. Throws Error if these are too few.
Regrouped go_on_without_lost(World& world, const train::TrainOptions& options,
                             const Elasticity& how, int step, double loss, double norm);

// Collective, after a checkpoint. Returns a World with more replicas if enough processes wait;
// null: the run continues in `world`.
std::unique_ptr<World> take_in(World& world, const train::TrainOptions& options,
                               const Elasticity& how);

// Blocks until a job that saves in the folder invites this process. Returns null if the job ends
// first. Throws Error if the job's rank 0 is dead for longer than the timeout.
std::unique_ptr<World> wait_to_join(const Elasticity& how);

}  // namespace weft
