// Checkpoints: all ranks write logical tensors in shards at once; a job of any other layout can
// read the checkpoint.
//
//   FOLDER/step-00000100/rank-00000.shard ...   the parts that each rank wrote, one after the other
//   FOLDER/step-00000100/manifest.json          tensors; file, offset and crc32c of each part
//   FOLDER/step-00000100/commit                 crc32c of the manifest; written last
//
// A rank writes every file beside its name, syncs and renames it. A checkpoint counts only with a
// commit that fits: after an interrupted save the previous checkpoint loads. One rank writes a part
// that several ranks have. Checkpoints know no model and no optimizer.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "train/model/stage.h"

namespace weft::train {

struct CheckpointOptions {
  int keep = 2;  // newest committed checkpoints to keep; a save removes older and interrupted ones
  // For tests: a save calls this at each point where a rank may die.
  std::function<void(const char* point)> at_point = {};
};

struct Checkpoint {
  int step = 0;
  nlohmann::json extra;  // the trainer's description of the run
  std::string path;      // the checkpoint's folder
  // Newer checkpoints that a load left out, each with its fault. On rank 0.
  std::vector<std::string> left_out = {};
};

// Writes the pieces of all ranks as the checkpoint of this step. A collective call; all ranks see
// the same file system. Throws Error on every rank, with the first cause, when a write fails or
// when the pieces of all ranks do not make whole tensors.
template <class T>
Checkpoint save_checkpoint(Communicator comm, const std::string& folder, int step,
                           const std::vector<TensorPart<T>>& pieces,
                           const nlohmann::json& extra = {}, const CheckpointOptions& options = {});

// Fills the pieces of all ranks from the newest checkpoint, or from that of one step (step >= 0),
// for any number and layout of ranks that wrote it; float and double convert. Where a file is
// missing, short or damaged, left_out names it and the previous checkpoint loads. A collective
// call. Throws Error on every rank where no whole checkpoint is found, or a tensor is missing or
// has another shape. accept(step, extra, path) runs before tensors are read; its exception becomes
// the Error of every rank.
template <class T>
Checkpoint load_checkpoint(Communicator comm, const std::string& folder,
                           const std::vector<TensorPart<T>>& pieces, int step = -1,
                           const std::function<void(const Checkpoint&)>& accept = {});

// Returns whether rank 0 sees a checkpoint in the folder: the same answer on every rank. Throws
// Error on every rank where rank 0 cannot read the folder, since a run that began anew would remove
// the checkpoints in it. A collective call.
bool checkpoint_there(Communicator comm, const std::string& folder);
// Throws UsageError on every rank where the folder has a checkpoint: a new run's checkpoints would
// be mixed with it. A collective call.
void require_no_checkpoint(Communicator comm, const std::string& folder);

}  // namespace weft::train
