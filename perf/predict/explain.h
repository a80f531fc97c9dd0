// Explains a collective on a shape for `weft explain`: choice, prediction, and proof.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coll/schedule/algorithm.h"
#include "coll/schedule/schedule.h"
#include "coll/select/choice.h"
#include "coll/select/cost.h"
#include "perf/predict/model_flags.h"

namespace weft {

struct Question {
  ModelCall call;  // call.shape.rank is the rank whose steps are shown
  std::string algorithm = "auto";
  Profile profile;
};

struct Explanation {
  Question question;
  std::vector<Candidate> candidates;  // algorithms that apply, fastest first
  Candidate chosen;
  Schedule schedule;      // schedule of rank shape.rank
  std::size_t steps = 0;  // number of steps of all ranks; set if the checker ran
  bool checked = false;
  std::string fault;  // the error that the checker found; empty if the schedules are correct
};

// Throws Error if the collective has no schedules or the algorithm does not apply.
Explanation explain(const Question& question);

// Returns the bytes of each chunk of a schedule if the whole message has `bytes`.
std::vector<double> chunk_bytes(const Schedule& schedule, Collective collective, double bytes);

std::string text(const Explanation& explanation);
std::string steps_text(const Explanation& explanation);
nlohmann::ordered_json to_json(const Explanation& explanation, bool steps);

}  // namespace weft
