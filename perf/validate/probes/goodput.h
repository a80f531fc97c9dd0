// What losses cost a flow. Pure.
#pragma once

namespace weft::fabric {

// Goodput as a share of the rate under go-back-N with `window` packets in flight. (1 - p) / (1 + p
// (W - 1)): D. Bertsekas, R. Gallager, "Data Networks", 2.4.1.
double go_back_n_goodput(double loss, double window);
// Most Gb/s of one TCP flow: M. Mathis et al., "The macroscopic behavior of the TCP congestion
// avoidance algorithm", CCR 1997.
double mathis_gbps(double loss, double segment_bytes, double rtt_us);

}  // namespace weft::fabric
