// What a checkpoint says of the run that wrote it, besides its tensors: written at each save,
// compared and taken over when a run goes on. Layouts, ZeRO and schedules may differ.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/checkpoint/checkpoint.h"
#include "train/trainer.h"

namespace weft::train {

// For `extra` of save_checkpoint(): options, text, how far the loss scale has got, and what the run
// computes in ("float", "bf16").
nlohmann::json describe_run(const TrainOptions& options, const Text& text, const LossScaler& scaler,
                            const std::string& type);

// load_checkpoint() of a run with these options. Throws UsageError on every rank where another
// optimizer wrote it: its moments would be taken for something else.
template <class T>
Checkpoint load_run(Communicator comm, const std::string& folder,
                    const std::vector<Piece<T>>& pieces, const TrainOptions& options);

// Sets the scale to that of the checkpoint; one that says none leaves it. Steps that were skipped
// count on.
void restore(const Checkpoint& from, LossScaler& scaler);

// What differs from the run that wrote it, as warnings: the run goes on, along another curve.
std::vector<std::string> differences(const Checkpoint& from, const TrainOptions& options,
                                     const Text& text, const std::string& type);

}  // namespace weft::train
