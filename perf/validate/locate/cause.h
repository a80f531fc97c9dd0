// The cause of bad samples: the place that explains them.
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
  kRail,   // all ports of a rail, such as its switch
  kGroup,  // some ports of a rail, such as those behind one leaf; see Cause::ports
  kFleet,  // all ports alike
};

enum class CauseKind { kRate, kLatency, kLoss, kUnreachable, kMtu, kSwapped, kUnstable };

struct Cause {
  CauseKind kind = CauseKind::kRate;
  CausePlace place = CausePlace::kPort;
  Port port;                  // the port, the sender of a path, or any port of the host or rail
  Port peer;                  // the receiver of a path; for kSwapped: the other port
  std::vector<Port> ports;    // the ports of a kGroup
  double value = 0;           // by kind: Gb/s, microseconds (p50), losses per packet, bytes of MTU
  double expected = 0;        // expected value, in the unit of `value`
  double low = 0, high = 0;   // confidence interval of `value`
  double confidence = 0;      // a score from 0 to 1: see Finding::score
  int samples = 0;            // flows that support the cause
  bool loaded_only = false;   // kLoss: paced flows lose nothing, so load causes the loss
  bool load_unclear = false;  // kLoss: a few more paced packets would decide loaded_only
  // kUnstable: fraction of the time for which the place is bad, or fraction of the flows that are
  // affected.
  double share = 0, share_low = 0, share_high = 0;
  // Length and period of bad spells of an intermittent fault; 0: unknown.
  double spell_s = 0, period_s = 0;
  // The cause affects the same flows repeatedly, and no other flows.
  bool of_flows = false;
  std::vector<int> labels = {};  // labels of affected flows (Flow::label)
};

}  // namespace weft::fabric
