// The description of a run in its checkpoints: each save writes the description, and a resumed run
// compares it with its own description. Layout, ZeRO stage and schedule may differ.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/checkpoint/checkpoint.h"
#include "train/trainer.h"

namespace weft::train {

// Returns `extra` for save_checkpoint(): options, text, state of the loss scaler, and the element
// type ("float", "bf16").
nlohmann::json describe_run(const TrainOptions& options, const Text& text, const LossScaler& scaler,
                            const std::string& type);

// Calls load_checkpoint() for a run with these options. Throws UsageError on every rank if the
// checkpoint is of another optimizer, whose moments are incompatible.
template <class T>
Checkpoint load_run(Communicator comm, const std::string& folder,
                    const std::vector<TensorPart<T>>& pieces, const TrainOptions& options);

// Restores the scaler's scale and counters; keeps the scale if the checkpoint has no scaler state.
void restore(const Checkpoint& from, LossScaler& scaler);

// Returns the differences from the checkpoint's run as warnings: the resumed run has another loss
// curve.
std::vector<std::string> differences(const Checkpoint& from, const TrainOptions& options,
                                     const Text& text, const std::string& type);

}  // namespace weft::train
