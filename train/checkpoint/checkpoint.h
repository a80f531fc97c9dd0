// Checkpoints: logical tensors in shards, written by all ranks at once, read into any other layout.
//
//   FOLDER/step-00000100/rank-00000.shard ...   numbers, piece after piece, of each rank that wrote
//   FOLDER/step-00000100/manifest.json          tensors, and where each piece is, with crc32c
//   FOLDER/step-00000100/commit                 crc32c of the manifest; written last
//
// Every file is written beside its name, synced and renamed. A checkpoint without a commit that
// fits is none: whatever interrupts a save, what loads is the one before. What several ranks have
// alike is written by one of them. Knows no model and no optimizer.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "train/model/stage.h"

namespace weft::train {

struct CheckpointOptions {
  int keep = 2;  // newest committed ones; older ones, and what was interrupted, are removed
  // For tests: called at each point of a save where a rank may die.
  std::function<void(const char* point)> at_point = {};
};

struct Checkpoint {
  int step = 0;
  nlohmann::json extra;  // what the trainer put in
  std::string path;      // its folder
  // Loading: newer ones that were left out, and what is wrong with each. On rank 0.
  std::vector<std::string> left_out = {};
};

// Writes the pieces of all ranks as the checkpoint of this step. A collective call; the folder is
// the same file system for all ranks. Throws Error on every rank, with the first cause, when it
// could not be written or when the pieces of all ranks do not make whole tensors.
template <class T>
Checkpoint save_checkpoint(Communicator comm, const std::string& folder, int step,
                           const std::vector<Piece<T>>& pieces, const nlohmann::json& extra = {},
                           const CheckpointOptions& options = {});

// Fills the pieces of all ranks from the newest checkpoint there, or from that of one step (step >=
// 0), whatever the number and layout of ranks that wrote it; float and double convert. A file that
// is missing, short or damaged is named in left_out, and the checkpoint before it is taken. A
// collective call. Throws Error on every rank: nothing whole to load, a tensor that is missing or
// has another shape. accept: called with step, extra and path before a tensor is read; what it
// throws becomes the Error of every rank.
template <class T>
Checkpoint load_checkpoint(Communicator comm, const std::string& folder,
                           const std::vector<Piece<T>>& pieces, int step = -1,
                           const std::function<void(const Checkpoint&)>& accept = {});

// Folders of committed checkpoints, oldest first. One that is not intact does not count.
std::vector<std::string> committed_checkpoints(const std::string& folder);

// Whether there is one to load, as rank 0 sees the folder: the same on every rank, also where one
// sees another folder. Throws Error on every rank where that cannot be told: whoever took it for no
// would begin anew and remove what is there. A collective call.
bool checkpoint_there(Communicator comm, const std::string& folder);
// For a run that starts from the beginning: throws UsageError on every rank where there is one. It
// would be taken for a later one of this run. A collective call.
void require_no_checkpoint(Communicator comm, const std::string& folder);

}  // namespace weft::train
