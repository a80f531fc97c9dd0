// TrainLog: the file of `weft train --log`, a line of JSON per step.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "train/trainer.h"

namespace weft::train {

nlohmann::json to_json(const StepReport& report, double tokens_per_s);

// The file of a trace's pipeline: "run.json" -> "run.pipeline.json".
std::string pipeline_file(const std::string& trace);

}  // namespace weft::train
namespace weft {

// Returns the peak resident memory of this process, in bytes.
double resident_bytes();

class TrainLog {
 public:
  // Opens the file to append lines; an empty path: no log. Throws Error where the file does not
  // open.
  explicit TrainLog(std::string path);
  bool on() const { return !path_.empty(); }
  // Writes the line to the file before returning. Throws Error where the write fails.
  void write(const nlohmann::json& line);

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace weft
