// Explains one collective on one shape for `weft explain`: the pick, the prediction, the proof.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coll/schedule/algorithm.h"
#include "coll/schedule/schedule.h"
#include "coll/select/choice.h"
#include "coll/select/cost.h"

namespace weft {

struct Question {
  Collective collective = Collective::kAllReduce;
  Shape shape;    // of the rank whose steps are shown
  int rails = 0;  // per host; 0: one per rank of a host
  std::uint64_t bytes = 0;
  DType type = DType::kFloat32;
  std::string algorithm = "auto";
  CostModel model;
  Profile profile;
};

struct Explanation {
  Question question;
  std::vector<Candidate> candidates;  // algorithms that apply, fastest first
  Candidate chosen;
  double bound_us = 0;
  Schedule schedule;      // of shape.rank
  std::size_t steps = 0;  // of all ranks together, where the checker ran
  bool checked = false;
  std::string fault;  // that the checker found; empty when the schedules are right
};

// Throws Error when the collective has no schedules or the algorithm does not apply.
Explanation explain(const Question& question);

// Returns the bytes of each chunk of a schedule when the whole message has `bytes`.
std::vector<double> chunk_bytes(const Schedule& schedule, Collective collective, double bytes);

std::string text(const Explanation& explanation);
std::string steps_text(const Explanation& explanation);
nlohmann::ordered_json to_json(const Explanation& explanation, bool steps);

}  // namespace weft
