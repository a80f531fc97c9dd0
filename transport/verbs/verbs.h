// Messages between hosts through RDMA verbs: reliable connections on InfiniBand or RoCE.
// One transport is one rail: one device, and one or more queue pairs for each peer with messages.
//
// The sender writes a message that fits a slot into a ring of the peer for this rank (eager). For a
// longer one the sender sends an RTS; once the receive is posted, the peer answers with a CTS
// (address and key of its buffer, and a window number), and the sender's device writes from buffer
// to buffer. Immediate data signals every arrival; weft never polls memory, since bytes may land in
// any order. docs/verbs.md has a drawing.
#pragma once

#include <memory>
#include <string>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/transport.h"

namespace weft {

// Returns why this process cannot use libibverbs: the dynamic linker's error, or that weft was
// built without it; empty if it can. The first call loads the library. Thread-safe.
std::string why_no_verbs();
inline bool verbs_available() { return why_no_verbs().empty(); }

// Collective over the job: all ranks call this function for the same rail at the same time (a
// gather and a scatter). It opens no queue pair: the first message to a peer makes the connection,
// with the letters of job.open_mailbox() (connections/), while both ends poll. `rail` is this
// host's device; the peers' devices may have other names. If set-up fails on one rank, every rank
// throws an Error that names the rank, the device and the kernel's error.
//
// The contract of Transport, and on top of it:
// - An eager send completes when its peer is connected and its bytes are in registered memory; a
//   longer send when the peer has the bytes. A rank sends no messages to itself
//   (kInvalidArgument). `data` is memory of the host or of a GPU (verbs/buffers.h).
// - A failed completion ends the transfers with its peer: kPeerFailed if the peer stopped
//   acknowledging, kTransport if a device refused. A sender notices a dead peer after about
//   timeout * (retries + 1); a rank that only receives learns of it from the job's control plane.
// - cancel() withdraws sends that wait for their CTS, and receives without a message. If a message
//   is half sent or half received, cancel() destroys the queue pairs with its peer, the only way to
//   stop the devices' access to `data`. If `replaceable`, other transfers with the peer then end
//   with kAborted (rails repeat them); otherwise they continue over new queue pairs.
// - The device's asynchronous events (a port went down, a queue pair or the device failed) end the
//   transfers concerned with kTransport, receives too. A port that went down ends them only if
//   `replaceable`, that is, if another rail can replace this one: otherwise the link may come back
//   before the retries are exhausted.
// - Destruction waits for the acknowledgement of sent messages, for a second at most.
//
// verbs/settings.h lists the environment variables.
std::unique_ptr<Transport> make_verbs_transport(Job& job, const Topology& topology, const Nic& rail,
                                                bool replaceable = false);

#ifndef WEFT_HAVE_VERBS
inline std::string why_no_verbs() { return "weft was built without verbs"; }
inline std::unique_ptr<Transport> make_verbs_transport(Job&, const Topology&, const Nic& rail,
                                                       bool = false) {
  throw Error("verbs: rail " + rail.name +
              ": weft was built without verbs; install libibverbs-dev and build again");
}
#endif

}  // namespace weft
