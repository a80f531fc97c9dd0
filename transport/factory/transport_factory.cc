// Chooses a transport for the rails and makes it. Knows the name and the needs of each transport
// between hosts, and nothing of how they move bytes.
#include "transport/factory/transport_factory.h"

#include <fmt/format.h>

#include <atomic>
#include <utility>

#include "transport/control/socket.h"
#include "transport/job/exchange.h"
#include "transport/tcp/tcp.h"
#include "transport/ucx/ucx.h"
#include "transport/verbs/verbs.h"

namespace weft {
namespace {

constinit std::atomic<RailDecorator> rail_decorator{nullptr};

bool opened_everywhere(const Topology& topology) {
  for (Rank r = 0; r < topology.nranks(); ++r)
    if (!topology.place(r).no_rdma.empty()) return false;
  return true;
}

bool rdma_everywhere(const Topology& topology) {
  for (Rank r = 0; r < topology.nranks(); ++r)
    for (const Nic& nic : topology.place(r).rails)
      if (!nic.rdma) return false;
  return true;
}

}  // namespace

std::string transport_between_hosts(const Topology& topology) {
  if (!opened_everywhere(topology)) return "tcp";
  if (verbs_available() && verbs_everywhere(topology)) return "verbs";
  return ucx_available() && rdma_everywhere(topology) ? "ucx" : "tcp";
}

std::string why_no_rdma(const Topology& topology) {
  for (Rank r = 0; r < topology.nranks(); ++r)
    if (const std::string& why = topology.place(r).no_rdma; !why.empty())
      return fmt::format(
          "{}: {}; tcp is used between hosts. Give the container its devices "
          "(--device=/dev/infiniband, or the RDMA device plugin), or say --transport tcp",
          rank_on_host(topology, r), why);
  return "";
}

std::unique_ptr<Transport> make_rail_transport(const std::string& name, Job& job,
                                               const Topology& topology, const Nic& rail,
                                               bool replaceable) {
  if (name == "verbs") return make_verbs_transport(job, topology, rail, replaceable);
  // A socket for each peer and rail. It may do with fewer: not everybody talks to everybody.
  (void)allow_files(job.size() * topology.nrails());
  if (name == "ucx") return make_ucx_transport(job, topology, rail);
  return make_tcp_transport(job, topology, rail);
}

void set_rail_decorator(RailDecorator decorator) noexcept { rail_decorator.store(decorator); }

std::unique_ptr<Transport> decorate_rail(const std::string& name, std::unique_ptr<Transport> rail) {
  const RailDecorator decorate = rail_decorator.load();
  return decorate ? decorate(name, std::move(rail)) : std::move(rail);
}

}  // namespace weft
