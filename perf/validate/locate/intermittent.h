// Finds intermittent faults, and faults that affect only some flows. Pure.
//
// Each kRate flow is one sample ("look") of its two ends and its path. A sample is bad if the flow
// is slow, stalls, or loses more packets than other flows. The first bad sample of a place selects
// the place; later ones decide, by a sequential test (A. Wald, "Sequential tests of statistical
// hypotheses", Annals of Mathematical Statistics 16, 1945) of "bad as often as in a healthy fleet"
// against "bad for kShareToSee of the time". Consecutive bad samples count as one event, because
// their reason persists. docs/statistics.md has the model and its power.
#pragma once

#include <utility>
#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/attribution.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

inline constexpr double kLook_s = 0.2;      // length of a sample
inline constexpr double kShareToSee = 0.1;  // of time bad: the sequential test's alternative
inline constexpr double kMissed = 0.025;    // share of such places that the test misses

// A place with some bad samples.
struct Intermittent {
  CausePlace place = CausePlace::kTransmit;        // kTransmit, kReceive or kPath
  Port port, peer;                                 // peer: for kPath
  bool named = false;                              // false: needs more samples
  int looks = 0, bad = 0;                          // after the selecting sample
  double share = 0, low = 0, high = 0;             // of bad samples, with interval
  double chance = 1;                               // probability that noise names the place
  double baseline_gbps = 0, bad_gbps = 0;          // medians of good and of bad samples
  double lost = 0, least_lost = 0, most_lost = 0;  // per packet of bad samples: median, range
  double spell_s = 0, period_s = 0;                // estimates; 0: unknown
  std::vector<std::pair<Flow, bool>> flows;        // in the order of the samples; true: bad
};

// Named places first. Flows that stall or fail are bad samples, too. Steady causes cover places
// with almost only bad samples.
std::vector<Intermittent> find_intermittent(const std::vector<FleetHost>& hosts,
                                            const Samples& samples, const Thresholds& thresholds,
                                            const Ignored& ignored);

}  // namespace weft::fabric
