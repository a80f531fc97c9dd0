// Chooses the transport of the rails and makes one end of it.
#pragma once

#include <memory>
#include <string>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/transport.h"

namespace weft {

// Returns the transport that `auto` takes between hosts. The topology alone decides, so all ranks
// decide alike: "verbs" where every rail of every rank is an RDMA device with reliable connections,
// up or not (the set-up of verbs names a port that is down), "ucx" where all of them are RDMA
// devices without (EFA), else "tcp"; "tcp" also where some rank cannot open a device of its host
// (Place::no_rdma) or lacks the library (Place::no_verbs, no_ucx).
std::string transport_between_hosts(const Topology& topology);
// Returns why RDMA is not used although a host has devices, and the remedy: a rank that cannot open
// a device, or has no library for it. Empty where RDMA is used, or no host has a device.
std::string why_no_rdma(const Topology& topology);

// Says in `place` which libraries this process lacks, of those that its rails and the transport
// that was asked for ("auto", "verbs" ...) need. Loads them.
void note_libraries(Place& place, const std::string& asked);
// Throws an Error, on every rank alike, that names the first rank without the library of the
// transport that was asked for, and the remedy.
void check_libraries(const Topology& topology, const std::string& asked);

// Makes this rank's end of a rail's transport. All ranks of the job call it, once for each rail.
// `name` is "verbs", "ucx" or "tcp"; `replaceable`: other rails take over when this rail fails.
// Throws Error.
std::unique_ptr<Transport> make_rail_transport(const std::string& name, Job& job,
                                               const Topology& topology, const Nic& rail,
                                               bool replaceable = false);

// Wraps the rail's transport called `name`; tests make one that reaches a fake device's memory.
using RailDecorator = std::unique_ptr<Transport> (*)(const std::string& name,
                                                     std::unique_ptr<Transport> rail);
// Sets the decorator of every rail made later; nullptr, the default: none.
void set_rail_decorator(RailDecorator decorator) noexcept;
std::unique_ptr<Transport> decorate_rail(const std::string& name, std::unique_ptr<Transport> rail);

}  // namespace weft
