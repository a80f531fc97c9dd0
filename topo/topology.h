// Where the ranks of a job live: hosts, high-speed domains, rails.
//
// A Topology does not know how bytes move. It is the same on every rank of a job: each rank
// describes itself (Place), the bootstrap gathers the places, Topology arranges them.
#pragma once

#include <string>
#include <vector>

#include "topo/base/status.h"

namespace weft {

// One network interface or RDMA device that may serve as a rail of this host.
struct Nic {
  std::string name;      // "eth0", "mlx5_0"
  bool rdma = false;     // a verbs device
  std::string netdev;    // the device's network interface (a plain interface: its own name)
  std::string pci;       // "0000:3b:00.0", empty for a virtual device
  int numa_node = -1;    // -1 where unknown
  double rate_gbps = 0;  // link rate in Gb/s, 0 where unknown
  std::string address;   // an IPv4/IPv6 address of netdev, empty where it has none
  std::string ipv6;      // an IPv6 address beside an IPv4 `address`, for hosts without IPv4
  bool up = false;
  bool tunnel = false;  // its packets leave by another interface; set for this host only
  bool closed = false;  // a verbs device that this process cannot open; set for this host only
  int from_gpu = -1;    // pci_distance() to the rank's GPU, in a Place; -1: unknown
};

// A rank's description of itself, sent to the other ranks during the bootstrap.
struct Place {
  std::string host;        // host identity; equal strings mean the same (possibly emulated) host
  std::string machine;     // "kernel:process ids:user"; two ranks with equal `machine` can map
                           // each other's memory, also when their `host` differs
  std::string no_rdma;     // why this process cannot open a verbs device of its host: "mlx5_0: ..."
  std::vector<Nic> rails;  // rail r of this host is rails[r]; the same order on every host
  std::string gpu;         // the PCI address of the GPU that is this rank's; empty: none is yet
  int numa_node = -1;      // the node of the cores this process may run on
};

// Returns the JSON text of a place, for the bootstrap.
std::string encode(const Place& place);
Place decode_place(const std::string& text);  // throws Error on malformed text

class Topology {
 public:
  // places[r] describes rank r. Rank r of a host with L local ranks and R rails uses rail
  // `local index * R / L` unless one is closer: in the PCI tree to the rank's GPU, where that is
  // known, else by NUMA nodes to its cores. Hosts of equal size choose alike, so ranks of equal
  // local index share a rail. place(r).rails is sorted in the order of host 0's PCI slots, with
  // addresses of a family that all hosts share: callers use place(r), not the place that r sent.
  // Throws Error when there are no ranks, or when ranks of one host list different rails.
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
  // True when one kernel runs both ranks, also in two containers: they compete for its cores.
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
