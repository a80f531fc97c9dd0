// Max-min fair rates of flows on shared links, the goal of congestion control. Pure.
#pragma once

#include <vector>

namespace weft::fabric {

// Returns rates in the unit of `capacity`. Flow f uses links[f] (indices into capacity) and never
// exceeds most[f]. Progressive filling: D. Bertsekas, R. Gallager, "Data Networks", 6.5.2.
std::vector<double> fair_rates(const std::vector<std::vector<int>>& links,
                               const std::vector<double>& most,
                               const std::vector<double>& capacity);

}  // namespace weft::fabric
