// Where the ranks of a job live: hosts, high-speed domains, rails.
//
// Knows nothing about how bytes move. A Topology is the same on every rank of a job: each rank
// describes itself (Place), rendezvous gathers the descriptions, Topology arranges them.
#pragma once

#include <string>
#include <vector>

#include "topo/base/status.h"

namespace weft {

// One network interface or RDMA device that may serve as a rail of this host.
struct Nic {
  std::string name;      // "eth0", "mlx5_0"
  bool rdma = false;     // a verbs device
  std::string netdev;    // the network interface behind it (equal to name for a plain one)
  std::string pci;       // "0000:3b:00.0", empty for a virtual one
  int numa_node = -1;    // -1 where unknown
  double rate_gbps = 0;  // link rate in Gb/s, 0 where unknown
  std::string address;   // an IPv4/IPv6 address of netdev, empty where it has none
  std::string ipv6;      // the IPv6 one beside an IPv4 `address`, for jobs with hosts without
  bool up = false;
  bool tunnel = false;  // it sends by another interface; known of this host's own only
};

// What a rank says of itself before the ranks are put together.
struct Place {
  std::string host;        // host identity; equal strings mean the same (possibly emulated) host
  std::string machine;     // identity of the running kernel and its process ids: ranks with equal
                           // `machine` can map each other's memory, whatever `host` says. What
                           // stands before the first ':' is the kernel
  std::vector<Nic> rails;  // rail r of this host is rails[r]; the same order on every host
  int numa_node = -1;      // of the cores this process may run on
};

// Text form for the rendezvous (JSON).
std::string encode(const Place& place);
Place decode_place(const std::string& text);  // throws Error on malformed text

class Topology {
 public:
  // places[r] describes rank r. Rank r of a host with L local ranks and R rails uses rail
  // `local index * R / L` unless the NUMA distance says otherwise (closest NIC first); hosts of
  // equal size always agree, so ranks of equal local index share a rail. place(r).rails comes back
  // in the order of host 0's PCI slots, with addresses of a family that all hosts share: use it,
  // not the place that r sent. Throws Error when there are no ranks, or ranks of one host list
  // different rails.
  explicit Topology(std::vector<Place> places);

  int nranks() const { return static_cast<int>(places_.size()); }
  int nhosts() const { return static_cast<int>(hosts_.size()); }
  int nrails() const { return nrails_; }         // the smallest count over hosts, >= 1
  int host(Rank r) const { return host_[r]; }    // index of r's host
  int local(Rank r) const { return local_[r]; }  // index of r among its host's ranks
  int rail(Rank r) const { return rail_[r]; }    // the rail r sends and receives on
  const std::vector<Rank>& ranks_of(int host) const { return hosts_[host]; }  // ascending
  const std::string& host_name(int host) const { return places_[hosts_[host][0]].host; }
  const Place& place(Rank r) const { return places_[r]; }
  bool same_host(Rank a, Rank b) const { return host_[a] == host_[b]; }
  // True when one kernel runs both, and so shares out its cores, also to containers.
  bool same_kernel(Rank a, Rank b) const;
  // True when every host has the same number of ranks.
  bool uniform() const;

 private:
  std::vector<Place> places_;
  std::vector<std::vector<Rank>> hosts_;
  std::vector<int> host_, local_, rail_;
  int nrails_ = 1;
};

}  // namespace weft
