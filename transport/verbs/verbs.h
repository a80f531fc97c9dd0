// Messages between hosts through RDMA verbs: reliable connections on InfiniBand or RoCE.
// One transport is one rail: one device, and for each peer one queue pair or more.
//
// Messages that fit a slot are written into a ring that the peer keeps for this rank. Longer ones
// are announced; once the receive is posted, the peer grants a window (address and key of its
// buffer), and the sender's device writes there from the sender's buffer. Every arrival is told by
// immediate data, never by looking at memory: the order in which bytes land means nothing.
// docs/verbs.md draws it.
#pragma once

#include <memory>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/transport.h"

namespace weft {

// True when weft was built with libibverbs.
bool verbs_available();
// True when every rail of every rank is a verbs device that is up: then `auto` takes verbs. The
// same on all ranks.
bool verbs_everywhere(const Topology& topology);

// Collective over the job: every rank calls it for the same rail at the same time (two
// job.all_gather). `rail` is this host's device; the peers may call theirs by another name.
// Throws Error naming the rank, the device and what the kernel said; it does so on every rank, also
// when set-up fails on one of them only.
//
// The contract of Transport, and on top of it:
// - A send that fits a slot completes when it is copied into registered memory; a longer one when
//   the peer has it. A rank has no messages with itself (kInvalidArgument). Memory of
//   the host, or of a GPU (verbs/gpu.h).
// - A completion that failed ends the transfers with that peer: kPeerFailed where it stopped to
//   acknowledge, kTransport where a device refused. A dead peer is noticed by who sends to it, in
//   about timeout * (retries + 1); who only receives hears of it from the job's control plane.
// - cancel() takes back sends that are announced only and receives that nothing has come for. Where
//   it meets a message half sent or half received, it closes the connections with that peer, since
//   only so the devices are certain to let go of `data`: other transfers with it end with kAborted.
// - The device's own reports (its port went down, a queue pair or the device failed) end the
//   transfers concerned with kTransport, also of who only receives. A port that went down does so
//   only where `replaceable`, which says that another rail stands in: else a link that is back
//   before the retries are exhausted does no harm.
// - Destruction waits for the acknowledgement of what was sent, for a second at most.
//
// verbs/settings.h lists the variables.
std::unique_ptr<Transport> make_verbs_transport(Job& job, const Topology& topology, const Nic& rail,
                                                bool replaceable = false);

#ifndef WEFT_HAVE_VERBS
inline bool verbs_available() { return false; }
inline bool verbs_everywhere(const Topology&) { return false; }
inline std::unique_ptr<Transport> make_verbs_transport(Job&, const Topology&, const Nic& rail,
                                                       bool = false) {
  throw Error("verbs: rail " + rail.name +
              ": weft was built without verbs; install libibverbs-dev and build again");
}
#endif

}  // namespace weft
