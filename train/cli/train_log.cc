// Appends JSON lines to the log. Does not compute steps.
#include "train/cli/train_log.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace weft {

double resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

TrainLog::TrainLog(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  file_.open(path_, std::ios::app);
  if (!file_)
    throw Error(fmt::format("--log {}: cannot be written: {}; name another file", path_,
                            std::strerror(errno)));
}

void TrainLog::write(const nlohmann::json& line) {
  errno = 0;
  if (!(file_ << line.dump() << std::endl))
    throw Error(fmt::format("--log {}: cannot be written: {}; make room, or name another file",
                            path_, std::strerror(errno)));
}

}  // namespace weft
namespace weft::train {
namespace {

nlohmann::json to_json(const AxisBytes& b) {
  return {{"data", b.data}, {"tensor", b.tensor}, {"pipeline", b.pipeline}, {"other", b.other}};
}

}  // namespace

std::string pipeline_file(const std::string& trace) {
  return std::filesystem::path(trace).replace_extension(".pipeline.json");
}

nlohmann::json to_json(const StepReport& r, double tokens_per_s) {
  nlohmann::json memory;
  const auto& ledger = MemoryLedger::of_this_rank();
  for (int u = 0; u < kUses; ++u)
    memory[name(static_cast<Use>(u))] = ledger.peak[static_cast<std::size_t>(u)];
  memory["peak"] = ledger.peak_total;
  memory["resident"] = resident_bytes();
  return {{"step", r.step},
          {"loss", r.loss},
          {"gradient_norm", r.norm},
          {"rate", r.rate},
          {"skipped", r.skipped},
          {"loss_scale", r.loss_scale},
          {"seconds", r.seconds},
          {"tokens_per_s", tokens_per_s},
          {"communication_share", r.communication_share()},
          {"offloaded_bytes", r.offloaded},
          {"tensor_s", r.tensor_seconds},
          {"pipeline_s", r.pipeline_seconds},
          {"gradients_total_s", r.gradient_seconds},
          {"gradients_exposed_s", r.exposed_seconds},
          {"bubble", r.bubble},
          {"straggler", {{"rank", r.straggler}, {"ratio", r.straggler_ratio}}},
          {"busy_s", r.busy_seconds},
          {"sent", to_json(r.sent)},
          {"memory", memory}};
}

}  // namespace weft::train
