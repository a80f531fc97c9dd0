// `weft train --log`: a line of JSON per step.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "train/trainer.h"

namespace weft::train {

nlohmann::json to_json(const StepReport& report, double tokens_per_s);

}  // namespace weft::train
namespace weft {

// Most memory that this process had, in bytes.
double resident_bytes();

class TrainLog {
 public:
  // Adds to the file; an empty path: to none. Throws Error where it cannot be opened.
  explicit TrainLog(std::string path);
  bool on() const { return !path_.empty(); }
  // The line is in the file when this returns. Throws Error where it is not.
  void write(const nlohmann::json& line);

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace weft
