// Chooses the transport of the rails and makes this rank's end of that transport.
#pragma once

#include <memory>
#include <string>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/transport.h"

namespace weft {

// Returns the transport that `auto` takes between hosts. It depends only on the topology, so that
// all ranks choose the same: "verbs" if every rail of every rank is an RDMA device with reliable
// connections, even if its port is down, which the set-up of verbs reports; "ucx" if all rails are
// RDMA devices without reliable connections (EFA); else "tcp"; also "tcp" if any rank cannot open a
// device of its host (Place::no_rdma) or lacks the library (Place::no_verbs, no_ucx).
std::string transport_between_hosts(const Topology& topology);
// Returns why RDMA is not used although a host has devices (a rank cannot open a device, or has no
// library for it), and the remedy. Empty if RDMA is used, or no host has a device.
std::string why_no_rdma(const Topology& topology);

// Loads the libraries that the rails and the requested transport ("auto", "verbs" ...) need, and
// records missing libraries in `place`.
void note_libraries(Place& place, const std::string& asked);
// If the library of the requested transport is missing, throws Error on every rank, with the first
// rank that lacks it and the remedy.
void check_libraries(const Topology& topology, const std::string& asked);

// Makes this rank's end of a rail's transport. All ranks of the job call it, once for each rail.
// `name` is "verbs", "ucx" or "tcp"; `replaceable`: other rails take over when this rail fails.
// Throws Error.
std::unique_ptr<Transport> make_rail_transport(const std::string& name, Job& job,
                                               const Topology& topology, const Nic& rail,
                                               bool replaceable = false);

// Wraps the rail's transport called `name`; tests use it to fake access to GPU memory.
using RailDecorator = std::unique_ptr<Transport> (*)(const std::string& name,
                                                     std::unique_ptr<Transport> rail);
// Sets the decorator of every rail made later; nullptr, the default: none.
void set_rail_decorator(RailDecorator decorator) noexcept;
std::unique_ptr<Transport> decorate_rail(const std::string& name, std::unique_ptr<Transport> rail);

}  // namespace weft
