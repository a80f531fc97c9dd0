// Which transport the rails have, and one end of it.
#pragma once

#include <memory>
#include <string>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/transport.h"

namespace weft {

// What `auto` takes between hosts, from the topology alone, so that all ranks decide alike: "verbs"
// where every rail of every rank is an RDMA device that is up, "ucx" where they are RDMA devices
// that verbs cannot have, else "tcp".
std::string transport_between_hosts(const Topology& topology);

// Collective over the job, once for each rail. `name` is "verbs", "ucx" or "tcp"; `replaceable`:
// another rail stands in for this one. Throws as the transports do.
std::unique_ptr<Transport> make_rail_transport(const std::string& name, Job& job,
                                               const Topology& topology, const Nic& rail,
                                               bool replaceable = false);

// What tests put around every rail, such as a NIC that reaches the memory of a fake device;
// nullptr, as it is at first: nothing. `name` is the rail's transport. Set before a job makes its
// rails.
using RailDecorator = std::unique_ptr<Transport> (*)(const std::string& name,
                                                     std::unique_ptr<Transport> rail);
void set_rail_decorator(RailDecorator decorator) noexcept;
std::unique_ptr<Transport> decorate_rail(const std::string& name, std::unique_ptr<Transport> rail);

}  // namespace weft
