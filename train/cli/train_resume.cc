// Writes, compares and restores descriptions of runs in checkpoints. Reads no tensors itself.
#include "train/cli/train_resume.h"

#include <fmt/format.h>

#include "transport/launch/failures.h"

namespace weft::train {
namespace {

// Returns the options of the checkpoint's run. Options that the checkpoint lacks (all, if it was
// not a GPT run) are copied from `mine`.
TrainOptions options_of(const Checkpoint& c, const TrainOptions& mine) {
  const bool there = c.extra.is_object() && c.extra.contains("options");
  return there ? with_described(mine, c.extra.at("options").get<std::string>()) : mine;
}

// Returns why a run with these options cannot resume from this checkpoint; empty: it can.
std::string refusal(const Checkpoint& c, const TrainOptions& options) {
  const bool adam = options_of(c, options).optimizer.adam;
  if (adam == options.optimizer.adam) return "";
  const char *theirs = adam ? "adamw" : "sgd", *mine = adam ? "sgd" : "adamw";
  return fmt::format(
      "--optimizer {}: {} was written with --optimizer {}, whose state means something else; say "
      "--optimizer {}, or --save another folder",
      mine, c.path, theirs, theirs);
}

}  // namespace

nlohmann::json describe_run(const TrainOptions& options, const Text& text, const LossScaler& scaler,
                            const std::string& type) {
  // Also without loss scaling: steps are skipped there too, and a later run may scale.
  return {{"options", describe(options)},
          {"type", type},
          {"text", {{"source", text.source()}, {"fingerprint", text.fingerprint()}}},
          {"loss_scale",
           {{"scale", scaler.scale()},
            {"good_steps", scaler.good_steps()},
            {"skipped_steps", scaler.skipped()}}}};
}

template <class T>
Checkpoint load_run(Communicator comm, const std::string& folder,
                    const std::vector<TensorPart<T>>& pieces, const TrainOptions& options) {
  std::string refused;
  try {
    return load_checkpoint(comm, folder, pieces, -1, [&](const Checkpoint& c) {
      refused = refusal(c, options);
      if (!refused.empty()) throw Error(refused);
    });
  } catch (const Error&) {
    if (!refused.empty()) throw UsageError(refused);
    throw;
  }
}

void restore(const Checkpoint& from, LossScaler& scaler) {
  if (!from.extra.is_object() || !from.extra.contains("loss_scale")) return;
  const auto& state = from.extra.at("loss_scale");
  const double scale = state.at("scale");  // 0: no loss scaling
  scaler.restore(scale > 0 ? scale : scaler.scale(), state.at("good_steps"),
                 state.value("skipped_steps", 0));
}

std::vector<std::string> differences(const Checkpoint& from, const TrainOptions& options,
                                     const Text& text, const std::string& type) {
  constexpr const char* kOtherCurve = "the curve is not that of one run";
  std::vector<std::string> all;
  const auto differ = [&](const char* flag, const auto& mine, const auto& theirs,
                          const std::string& then) {
    if (mine != theirs)
      all.push_back(fmt::format("--{} is {}, but {} was written with {}: {}", flag, mine, from.path,
                                theirs, then));
  };
  const TrainOptions theirs = options_of(from, options);
  differ("batch", options.batch, theirs.batch, kOtherCurve);
  differ("seed", options.seed, theirs.seed, kOtherCurve);
  differ("clip", options.clip, theirs.clip, kOtherCurve);
  differ("lr", options.rate.peak, theirs.rate.peak, kOtherCurve);
  differ("warm-up", options.rate.warm_up, theirs.rate.warm_up, kOtherCurve);
  // More steps do not change the curve if the rate has not begun to decay.
  if (options.rate.peak == theirs.rate.peak && options.rate.warm_up == theirs.rate.warm_up)
    if (const double was = theirs.rate.at(from.step), is = options.rate.at(from.step); was != is)
      differ("steps", options.rate.steps, theirs.rate.steps,
             fmt::format("the learning rate goes from {:.3g} to {:.3g}", was, is));
  if (options.loss_scale > 0 && theirs.loss_scale > 0)
    differ("loss-scale", options.loss_scale, theirs.loss_scale,
           "it continues with the scale of the checkpoint");
  // Files contain floats also for 16-bit weights, so only this entry shows the type.
  if (from.extra.is_object()) differ("type", type, from.extra.value("type", type), kOtherCurve);
  if (from.extra.is_object() && from.extra.contains("text")) {
    const auto& t = from.extra.at("text");
    if (t.at("fingerprint") != text.fingerprint())
      differ("data", fmt::format("{} ({:016x})", text.source(), text.fingerprint()),
             fmt::format("{} ({:016x})", t.at("source").get<std::string>(),
                         t.at("fingerprint").get<std::uint64_t>()),
             kOtherCurve);
  }
  return all;
}

template Checkpoint load_run(Communicator, const std::string&,
                             const std::vector<TensorPart<float>>&, const TrainOptions&);
template Checkpoint load_run(Communicator, const std::string&,
                             const std::vector<TensorPart<double>>&, const TrainOptions&);

}  // namespace weft::train
