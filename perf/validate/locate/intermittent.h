// Finds faults that come and go, and faults that hit only some flows. Pure.
//
// Each flow of kRate is one look at its two ends and at its path. It is bad where it is slow,
// stands still, or loses packets that others do not. The first bad look at a place selects the
// place; the looks after it decide, by a sequential test (A. Wald, "Sequential tests of statistical
// hypotheses", Annals of Mathematical Statistics 16, 1945) of "as often bad as in a healthy fleet"
// against "bad for kShareToSee of the time". Bad looks in a row are one event, since what makes a
// look bad lasts. docs/statistics.md has the model and its power.
#pragma once

#include <utility>
#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/attribution.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

inline constexpr double kLook_s = 0.2;      // length of a look
inline constexpr double kShareToSee = 0.1;  // of the time: what the sequential test looks for
inline constexpr double kMissed = 0.025;    // of places that are bad so often

// A place some of whose looks are bad.
struct Intermittent {
  CausePlace place = CausePlace::kTransmit;        // kTransmit, kReceive or kPath
  Port port, peer;                                 // peer: of kPath
  bool named = false;                              // false: more looks decide
  int looks = 0, bad = 0;                          // after the selecting one
  double share = 0, low = 0, high = 0;             // of looks that are bad, with its interval
  double chance = 1;                               // that noise names the place
  double baseline_gbps = 0, bad_gbps = 0;          // medians of good and of bad looks
  double lost = 0, least_lost = 0, most_lost = 0;  // per packet of bad looks: median, range
  double spell_s = 0, period_s = 0;                // estimates; 0: not known
  std::vector<std::pair<Flow, bool>> flows;        // in the order of the looks; true: bad
};

// Named places first. Flows that stand still, or do not arrive, are bad looks, too. Places whose
// looks are nearly all bad are left to the steady causes.
std::vector<Intermittent> find_intermittent(const std::vector<FleetHost>& hosts,
                                            const Samples& samples, const Thresholds& thresholds,
                                            const Ignored& ignored);

// Whether what makes looks of the place bad comes and goes with time, or belongs to certain flows:
// what repeats of the same source ports say. kUnknown: too few repeats.
enum class Bound { kUnknown, kTime, kFlows };
Bound bound_of(const Intermittent& place);
std::vector<Flow> flows_to_repeat(
    const Intermittent& place);  // that would tell; empty: it is known

}  // namespace weft::fabric
