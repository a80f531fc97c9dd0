// Descriptions of runs in checkpoints: made, compared, restored. This file reads no tensors itself.
#include "train/cli/train_resume.h"

#include <fmt/format.h>

#include <map>
#include <sstream>

#include "transport/launch/failures.h"

namespace weft::train {
namespace {

using Settings = std::map<std::string, std::string>;

// Of a text of describe().
Settings settings_of(const std::string& text) {
  Settings all;
  std::istringstream in(text);
  for (std::string name, value; in >> name >> value;) all[name] = value;
  return all;
}

// Nothing where it was not a GPT that was saved.
Settings settings_of(const Checkpoint& c) {
  const bool there = c.extra.is_object() && c.extra.contains("options");
  return there ? settings_of(c.extra.at("options").get<std::string>()) : Settings();
}

// The learning rate that a run with these settings has at that step.
double rate_at(const Settings& s, int step) {
  const auto number = [&](const char* name) { return std::stod(s.at(name)); };
  const RateSchedule rate{number("lr"), static_cast<int>(number("warm-up")), number("start"),
                          static_cast<int>(number("steps")), number("floor")};
  return rate.at(step);
}

std::string optimizer(const std::string& adam) { return adam == "true" ? "adamw" : "sgd"; }

// Why this checkpoint is not for these options, or nothing.
std::string refusal(const Checkpoint& c, const TrainOptions& options) {
  const Settings theirs = settings_of(c);
  const auto adam = theirs.find("adam");
  const std::string mine = optimizer(options.optimizer.adam ? "true" : "false");
  if (adam == theirs.end() || optimizer(adam->second) == mine) return "";
  return fmt::format(
      "--optimizer {}: {} was written with --optimizer {}, whose state means something else; say "
      "--optimizer {}, or --save another folder",
      mine, c.path, optimizer(adam->second), optimizer(adam->second));
}

}  // namespace

nlohmann::json describe_run(const TrainOptions& options, const Text& text, const LossScaler& scaler,
                            const std::string& type) {
  nlohmann::json run = {{"options", describe(options)},
                        {"type", type},
                        {"text", {{"source", text.source()}, {"fingerprint", text.fingerprint()}}}};
  // Also where nothing is scaled: steps are skipped there too, and a later run may scale again.
  run["loss_scale"] = {{"scale", scaler.scale()},
                       {"good_steps", scaler.good_steps()},
                       {"skipped_steps", scaler.skipped()}};
  return run;
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
  const double scale = state.at("scale");  // 0: nothing was scaled
  scaler.restore(scale > 0 ? scale : scaler.scale(), state.at("good_steps"),
                 state.value("skipped_steps", 0));
}

std::vector<std::string> differences(const Checkpoint& from, const TrainOptions& options,
                                     const Text& text, const std::string& type) {
  constexpr const char* kOtherCurve = "the curve is not that of one run";
  std::vector<std::string> all;
  const auto differ = [&](const char* flag, const std::string& mine, const std::string& theirs,
                          const std::string& then) {
    all.push_back(fmt::format("--{} is {}, but {} was written with {}: {}", flag, mine, from.path,
                              theirs, then));
  };
  const Settings theirs = settings_of(from), mine = settings_of(describe(options));
  for (const char* name : {"batch", "seed", "clip", "lr", "warm-up"}) {
    const auto it = theirs.find(name);
    if (it != theirs.end() && it->second != mine.at(name))
      differ(name, mine.at(name), it->second, kOtherCurve);
  }
  // More steps are no other curve where the rate has not begun to fall.
  const auto same = [&](const char* name) {
    return theirs.contains(name) && theirs.at(name) == mine.at(name);
  };
  if (theirs.contains("steps") && !same("steps") && same("lr") && same("warm-up"))
    if (const double was = rate_at(theirs, from.step), is = rate_at(mine, from.step); was != is)
      differ("steps", mine.at("steps"), theirs.at("steps"),
             fmt::format("the learning rate goes from {:.3g} to {:.3g}", was, is));
  const auto scale = theirs.find("loss-scale");
  if (options.loss_scale > 0 && scale != theirs.end() && scale->second != "0" &&
      scale->second != mine.at("loss-scale"))
    differ("loss-scale", mine.at("loss-scale"), scale->second,
           "it goes on with the scale that this one had reached");
  // The files hold floats for 16-bit weights, too, so that nothing else tells.
  if (from.extra.is_object() && from.extra.value("type", type) != type)
    differ("type", type, from.extra.at("type"), kOtherCurve);
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
