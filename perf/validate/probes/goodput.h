// The cost of losses to a flow. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft::fabric {

// Returns the goodput as a fraction of the rate under go-back-N with `window` packets in flight: (1
// - p) / (1 + p (W - 1)). D. Bertsekas, R. Gallager, "Data Networks", 2.4.1.
inline double go_back_n_goodput(double loss, double window) {
  return (1 - loss) / (1 + loss * (std::max(1.0, window) - 1));
}

// Returns the upper bound of one TCP flow in Gb/s: M. Mathis et al., "The macroscopic behavior of
// the TCP congestion avoidance algorithm", CCR 1997.
inline double mathis_gbps(double loss, double segment_bytes, double rtt_us) {
  if (loss <= 0) return std::numeric_limits<double>::infinity();
  return 8e-3 * segment_bytes / rtt_us * std::sqrt(1.5 / loss);
}

}  // namespace weft::fabric
