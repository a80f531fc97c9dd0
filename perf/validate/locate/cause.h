// The cause of samples out of line: one place that explains them.
#pragma once

#include <vector>

#include "perf/validate/probes/samples.h"

namespace weft::fabric {

enum class CausePlace {
  kTransmit,  // one port, sending
  kReceive,   // one port, receiving
  kPort,      // one port, both directions
  kHostTransmit,
  kHostReceive,
  kHost,   // all ports of a host
  kPath,   // one directed pair of ports
  kPair,   // both directions of one pair
  kRail,   // all ports of a rail: its switch
  kGroup,  // some ports of a rail, as behind one leaf; see Cause::ports
  kFleet,  // everything alike
};

enum class CauseKind { kRate, kLatency, kLoss, kUnreachable, kMtu, kSwapped, kUnstable };

struct Cause {
  CauseKind kind = CauseKind::kRate;
  CausePlace place = CausePlace::kPort;
  Port port;                  // the port, the sender of a path, or any port of the host or rail
  Port peer;                  // the receiver of a path; of kSwapped: the other port
  std::vector<Port> ports;    // of kGroup
  double value = 0;           // Gb/s, microseconds (p50), losses per packet, bytes of MTU
  double expected = 0;        // in the same unit
  double low = 0, high = 0;   // interval of confidence of `value`
  double confidence = 0;      // a score, 0 to 1: see Finding::score
  int samples = 0;            // flows that speak for the cause
  bool loaded_only = false;   // of kLoss: paced flows lose nothing, so load makes the loss
  bool load_unclear = false;  // of kLoss: somewhat more paced packets would tell
  // Of kUnstable: the share of the time in which the place is bad, or of the flows that it hits.
  double share = 0, share_low = 0, share_high = 0;
  double spell_s = 0, period_s = 0;  // of the time; 0: not known
  bool of_flows = false;             // it hits the same flows again, and spares the others
  std::vector<int> labels = {};      // of flows that it hits (Flow::label)
};

}  // namespace weft::fabric
