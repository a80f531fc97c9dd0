// Formulas of goodput.h.
#include "perf/validate/probes/goodput.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft::fabric {

double go_back_n_goodput(double loss, double window) {
  return (1 - loss) / (1 + loss * (std::max(1.0, window) - 1));
}

double mathis_gbps(double loss, double segment_bytes, double rtt_us) {
  if (loss <= 0) return std::numeric_limits<double>::infinity();
  return 8e-3 * segment_bytes / rtt_us * std::sqrt(1.5 / loss);
}

}  // namespace weft::fabric
