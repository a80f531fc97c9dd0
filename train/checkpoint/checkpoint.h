// Checkpoints: all ranks write shards of logical tensors in parallel; a job with any layout can
// load them.
//
//   FOLDER/step-00000100/rank-00000.shard ...   the parts that each rank wrote, one after the other
//   FOLDER/step-00000100/manifest.json          tensors; file, offset and crc32c of each part
//   FOLDER/step-00000100/commit                 crc32c of the manifest; written last
//
// A rank writes each file under a temporary name, syncs and renames it. A checkpoint is valid only
// with a matching commit: after an interrupted save, jobs load the previous checkpoint. One rank
// writes a replicated part. Checkpoints are independent of model and optimizer.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "train/model/stage.h"

namespace weft::train {

struct CheckpointOptions {
  // Number of committed checkpoints to keep; a save removes older and interrupted checkpoints.
  int keep = 2;
  // For tests: a save calls this at each point where a rank may fail.
  std::function<void(const char* point)> at_point = {};
};

struct Checkpoint {
  int step = 0;
  nlohmann::json extra;  // the trainer's description of the run
  std::string path;      // the checkpoint's folder
  // Rank 0 only: newer checkpoints that the load skipped, each with its error.
  std::vector<std::string> left_out = {};
};

// Collective. Writes the pieces of all ranks as the checkpoint of this step; all ranks must share a
// file system. Throws Error on every rank, with the first cause, if a write fails or the pieces of
// all ranks do not cover whole tensors.
template <class T>
Checkpoint save_checkpoint(Communicator comm, const std::string& folder, int step,
                           const std::vector<TensorPart<T>>& pieces,
                           const nlohmann::json& extra = {}, const CheckpointOptions& options = {});

// Collective. Fills the pieces of all ranks from the newest checkpoint, or from one step's (step >=
// 0), written by any number and layout of ranks; float and double convert. If a file is missing,
// short or damaged, the previous checkpoint loads and left_out has the error. Throws Error on every
// rank if no complete checkpoint is found, or a tensor is missing or has another shape.
// accept(checkpoint) runs before tensors are read; its exception becomes the Error of every rank.
template <class T>
Checkpoint load_checkpoint(Communicator comm, const std::string& folder,
                           const std::vector<TensorPart<T>>& pieces, int step = -1,
                           const std::function<void(const Checkpoint&)>& accept = {});

// Collective. Returns whether rank 0 finds a checkpoint in the folder, the same on every rank.
// Throws Error on every rank if rank 0 cannot read the folder, since a new run would remove the
// checkpoints in it.
bool checkpoint_there(Communicator comm, const std::string& folder);
// Collective. Throws UsageError on every rank if the folder has a checkpoint: a new run would mix
// its checkpoints with the old one.
void require_no_checkpoint(Communicator comm, const std::string& folder);

}  // namespace weft::train
