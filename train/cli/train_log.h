// TrainLog: the file of `weft train --log`, one JSON line per step.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "train/trainer.h"

namespace weft::train {

nlohmann::json to_json(const StepReport& report, double tokens_per_s);

// Returns the pipeline file of a trace: "run.json" -> "run.pipeline.json".
std::string pipeline_file(const std::string& trace);

}  // namespace weft::train
namespace weft {

// Returns the peak resident memory of this process, in bytes.
double resident_bytes();

class TrainLog {
 public:
  // Opens the file to append lines; an empty path: no log. Throws Error if the file cannot be
  // opened.
  explicit TrainLog(std::string path);
  bool on() const { return !path_.empty(); }
  // Writes and flushes the line. Throws Error if the write fails.
  void write(const nlohmann::json& line);

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace weft
