// Finds intermittent faults, and faults that affect only some flows. Pure.
//
// Each kRate flow is one sample ("look") of its two ends and its path. A sample is bad if the flow
// is slow, stalls, or loses more packets than other flows. The first bad sample of a place selects
// the place; later ones decide, by a sequential test (A. Wald, "Sequential tests of statistical
// hypotheses", Annals of Mathematical Statistics 16, 1945) of "bad as often as in a healthy fleet"
// against "bad for kShareToSee of the time". Consecutive bad samples are treated as one event,
// because their reason persists. docs/statistics.md has the model and its power.
#pragma once

#include <utility>
#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/attribution.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

inline constexpr double kLook_s = 0.2;  // length of a sample
// Share of bad time in the sequential test's alternative.
inline constexpr double kShareToSee = 0.1;
// Share of places with that alternative that the test misses.
inline constexpr double kMissed = 0.025;

// A place with some bad samples.
struct Intermittent {
  CausePlace place = CausePlace::kTransmit;  // kTransmit, kReceive or kPath
  Port port, peer;                           // `peer` only for kPath
  bool named = false;                        // false: needs more samples
  // samples, and bad samples, after the selecting sample
  int looks = 0, bad = 0;
  // Share of bad samples, and its confidence interval.
  double share = 0, low = 0, high = 0;
  double chance = 1;                       // probability that noise names the place
  double baseline_gbps = 0, bad_gbps = 0;  // medians of good and of bad samples
  // Losses per packet of bad samples: median, minimum, maximum.
  double lost = 0, least_lost = 0, most_lost = 0;
  double spell_s = 0, period_s = 0;  // estimates; 0: unknown
  // Flow of each sample, in order; true: the sample is bad.
  std::vector<std::pair<Flow, bool>> flows;
};

// Returns the places with bad samples, named places first. Flows that stall or fail are bad
// samples, too. Leaves out places with almost only bad samples, which steady causes cover.
std::vector<Intermittent> find_intermittent(const std::vector<FleetHost>& hosts,
                                            const Samples& samples, const Thresholds& thresholds,
                                            const Ignored& ignored);

}  // namespace weft::fabric
